package telegram

import (
	"context"
	"strings"
	"sync"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

const (
	// placeholder stands where an answer is to come. Its id is what makes the answer an edit, which may be repeated.
	placeholder = "…"
	// cursor ends a text that is not finished.
	cursor = " ▉"
	// groupInterval is the least pause between edits in groups, whose limit is 20 messages a minute.
	groupInterval = 3 * time.Second
	// maxInterval and maxStrikes end the streaming of a turn in a chat that is over its limit.
	maxInterval = 10 * time.Second
	maxStrikes  = 3
	// lastCall is how long a request of a running turn still has when its answer is to be sent. One that is given up may
	// reach the platform behind the answer, or leave a placeholder of which nobody knows the id.
	lastCall = 400 * time.Millisecond
	// lateEdit is how long after it was given up an edit may still reach the platform.
	lateEdit = 3 * time.Second
	// maxLive is how many messages show a turn that runs. A longer text is completed at the end.
	maxLive = 4
	// shownTools is how many of the last tool calls are listed, and maxToolLine how long a line of them may be, in runes.
	shownTools  = 3
	maxToolLine = 120
)

// live holds what is shown of the turns that run.
type live struct {
	interval time.Duration

	mu    sync.Mutex
	turns map[string]*screen
}

// A screen is what is shown of one turn. The frame shows one event of a chat at a time, so it needs no lock.
type screen struct {
	target   target
	ids      []int    // of the messages
	texts    []string // that they show
	heard    time.Time
	interval time.Duration
	strikes  int
	stopped  bool      // nothing more is shown
	late     time.Time // until when an edit that was given up may still come; zero: never

	text   string
	tools  []toolLine
	notice string
}

type toolLine struct {
	call, text string
	mark       string
}

func newLive(interval time.Duration) *live {
	return &live{interval: interval, turns: map[string]*screen{}}
}

// of returns the screen of a turn.
func (l *live) of(turn string, t target, ids []int) *screen {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.turns[turn]
	if !ok {
		s = &screen{target: t, interval: l.interval, ids: ids, texts: make([]string, len(ids))}
		if t.chat < 0 {
			s.interval = max(s.interval, groupInterval)
		}
		l.turns[turn] = s
	}
	s.heard = time.Now()
	return s
}

func (l *live) known(turn string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.turns[turn]
	return ok
}

// cameLate notes that an edit had no answer.
func (l *live) cameLate(s *screen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.late = time.Now().Add(lateEdit)
}

// late is how long edits of a turn that were given up may still reach the platform.
func (l *live) late(turn string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.turns[turn]; ok {
		return time.Until(s.late)
	}
	return 0
}

// unplace forgets the messages of a turn, which were taken away.
func (l *live) unplace(turn string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.turns[turn]; ok {
		s.ids, s.texts = nil, nil
	}
}

// end forgets a turn.
func (l *live) end(turn string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.turns, turn)
}

// sweep forgets turns that nothing was heard of for long.
func (l *live) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.turns {
		if now.Sub(s.heard) > shownKept {
			delete(l.turns, id)
		}
	}
}

// Show shows one event of a running turn. It returns when the next one may be shown.
func (a *Adapter) Show(ctx context.Context, to gateway.To, event *turnv1.TurnEvent) {
	t, ok := targetOf(to)
	if !ok {
		return
	}
	a.turns.add(openTurn{id: event.TurnId, chat: to.ChatID, thread: to.ThreadID})
	switch e := event.Event.(type) {
	case *turnv1.TurnEvent_Queued:
		return
	case *turnv1.TurnEvent_Approval:
		a.askPerson(ctx, to, event.TurnId, e.Approval)
		return
	case *turnv1.TurnEvent_Decision:
		a.decided(ctx, to, e.Decision)
		return
	}
	a.typing.on(event.TurnId, t)
	if !a.set.Streaming {
		return
	}
	var ids []int
	if !a.live.known(event.TurnId) {
		ids = a.shelf.shownOf(event.TurnId)
	}
	s := a.live.of(event.TurnId, a.replying(t), ids)
	if s.take(event) && a.refresh(ctx, event.TurnId, s) {
		_ = pause(ctx, s.interval) // ends with ctx: an answer is waiting
	}
}

// take notes an event. It returns false if there is nothing new to see.
func (s *screen) take(event *turnv1.TurnEvent) bool {
	switch e := event.Event.(type) {
	case *turnv1.TurnEvent_Started:
		s.text, s.tools, s.notice = "", nil, ""
	case *turnv1.TurnEvent_Text:
		if e.Text.Text == s.text {
			return false
		}
		s.text = e.Text.Text
	case *turnv1.TurnEvent_ToolStarted:
		s.tool(e.ToolStarted.CallId, "⚙", e.ToolStarted.Tool+": "+e.ToolStarted.Summary)
	case *turnv1.TurnEvent_ToolFinished:
		mark := "✓"
		if !e.ToolFinished.Ok {
			mark = "✗"
		}
		s.tool(e.ToolFinished.CallId, mark, e.ToolFinished.Tool)
	case *turnv1.TurnEvent_Notice:
		s.notice = e.Notice.Text
	default:
		return false
	}
	return true
}

// tool notes a line of a tool call, which keeps its text when the call has ended.
func (s *screen) tool(call, mark, line string) {
	for i := range s.tools {
		if s.tools[i].call == call {
			s.tools[i].mark = mark
			return
		}
	}
	line = strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(line, "\n", " ")), ":")
	if runes := []rune(line); len(runes) > maxToolLine {
		line = string(runes[:maxToolLine]) + "…"
	}
	s.tools = append(s.tools, toolLine{call: call, mark: mark, text: line})
	if n := len(s.tools); n > shownTools {
		s.tools = s.tools[n-shownTools:]
	}
}

// parts are the messages that show the turn now.
func (s *screen) parts() []text.Styled {
	parts := text.Markdown(s.text).Split(text.Limit{Size: maxText, Spans: maxEntities})
	foot := s.foot()
	switch n := len(parts); {
	case n == 0:
		return []text.Styled{text.Plain(strings.TrimSpace(foot + "\n" + placeholder))}
	default:
		last := &parts[n-1]
		if foot != "" {
			foot = "\n\n" + foot
		}
		if text.UTF16Len(last.Text+cursor+foot) <= maxText {
			last.Text += cursor + foot
		}
	}
	return parts
}

// foot lists tool calls and the last notice, below the text.
func (s *screen) foot() string {
	var lines []string
	for _, t := range s.tools {
		lines = append(lines, t.mark+" "+t.text)
	}
	if s.notice != "" {
		lines = append(lines, s.notice)
	}
	return strings.Join(lines, "\n")
}

// refresh brings the messages up to date as far as the limits allow. It returns whether it asked anything of the
// platform.
func (a *Adapter) refresh(ctx context.Context, turn string, s *screen) (asked bool) {
	parts := s.parts()
	if s.stopped || len(parts) > maxLive || a.limits.blocked(s.target.chat) > 0 {
		return false
	}
	for i, part := range parts {
		if i == len(s.ids) {
			if i == 0 && a.turns.behind(turn) {
				return false // the answer before it takes its place in the chat first
			}
			asked = true
			if !a.place(ctx, turn, s) {
				return true
			}
		}
		if s.texts[i] == part.Text {
			continue
		}
		if part.Text == placeholder {
			s.texts[i] = placeholder
			continue
		}
		if ctx.Err() != nil {
			return asked
		}
		call, end := outliving(ctx, lastCall)
		done, err := a.sender.draft(call, s.target, s.ids[i], part)
		end()
		asked = asked || done || err != nil
		if mayHaveHappened(err) {
			a.live.cameLate(s)
		}
		if !done {
			s.refused(err)
			return asked
		}
		s.texts[i] = part.Text
	}
	return asked
}

// outliving returns a context that ends a while after ctx; end must be called.
func outliving(ctx context.Context, by time.Duration) (out context.Context, end func()) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = pause(out, by)
		cancel()
	})
	return out, func() { stop(); cancel() }
}

// place sends the placeholder of one more message.
func (a *Adapter) place(ctx context.Context, turn string, s *screen) bool {
	t := s.target
	if len(s.ids) > 0 {
		t.reply = 0
	}
	if ctx.Err() != nil {
		return false
	}
	call, end := outliving(ctx, lastCall)
	defer end()
	id, err := a.sender.placeholder(call, t)
	if err != nil {
		s.refused(err)
		return false
	}
	s.ids, s.texts = append(s.ids, id), append(s.texts, placeholder)
	if err := a.shelf.setShown(shown{Key: turn, Chat: t.chat, Thread: t.thread, IDs: s.ids}); err != nil {
		a.log.Warn("the message of a running turn was not noted", "turn", turn, "error", err)
	}
	return true
}

// refused slows down or stops after an edit that was not made.
func (s *screen) refused(err error) {
	if err == nil {
		return // no room just now
	}
	if _, flooded := retryAfter(err); flooded {
		s.strikes++
		s.interval = min(2*s.interval, maxInterval)
	}
	if s.strikes >= maxStrikes || isNotEditable(err) || isChatGone(err) {
		s.stopped = true
	}
}

// replying leaves out what is answered where that is not shown.
func (a *Adapter) replying(t target) target {
	if a.set.Reply == "off" || a.set.Reply == "groups" && t.chat > 0 {
		t.reply = 0
	}
	return t
}
