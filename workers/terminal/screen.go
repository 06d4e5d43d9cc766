package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A screen writes a turn as it happens. The same events may come again (a new connection, a new attempt): what was
// written stays, and only what differs is written.
type screen struct {
	mu     sync.Mutex
	w      io.Writer
	colour bool
	quiet  bool // no text of the model, only what happens
	ascii  bool // the signs of this program are in ASCII; what the model says stays as it is

	midLine bool // the cursor is behind a text
	steps   map[uint32]*step
	open    *step           // the one whose text came last, if no tool was called since
	calls   map[string]bool // started; true: finished too
	attempt uint32
	said    map[string]bool // notices
}

// A step is one answer of the model within the turn.
type step struct {
	written string
	fresh   string // what this connection and attempt has brought of it
}

func newScreen(w io.Writer, colour, quiet bool) *screen {
	s := &screen{w: w, colour: colour, quiet: quiet}
	s.begin()
	return s
}

// begin forgets the turn before.
func (s *screen) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps, s.calls, s.said = map[uint32]*step{}, map[string]bool{}, map[string]bool{}
	s.open, s.attempt = nil, 0
}

// rejoin says that events begin anew.
func (s *screen) rejoin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.void()
}

func (s *screen) void() {
	for _, st := range s.steps {
		st.fresh = ""
	}
}

// show writes one event, but for approvals and the end.
func (s *screen) show(ev *turnv1.TurnEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := ev.Event.(type) {
	case *turnv1.TurnEvent_Queued:
		if e.Queued.Ahead > 0 {
			s.note(fmt.Sprintf("waits for %d earlier in this session", e.Queued.Ahead))
		}
	case *turnv1.TurnEvent_Started:
		s.started(e.Started.Attempt)
	case *turnv1.TurnEvent_Text:
		s.text(e.Text)
	case *turnv1.TurnEvent_ToolStarted:
		if _, known := s.calls[e.ToolStarted.CallId]; !known {
			s.calls[e.ToolStarted.CallId] = false
			s.open = nil
			s.line(fmt.Sprintf("→ %s  %s", e.ToolStarted.Tool, flat(e.ToolStarted.Summary, 200)))
		}
	case *turnv1.TurnEvent_ToolProgress:
		if !s.calls[e.ToolProgress.CallId] {
			s.line("  " + flat(e.ToolProgress.Text, 200))
		}
	case *turnv1.TurnEvent_ToolFinished:
		s.finished(e.ToolFinished)
	case *turnv1.TurnEvent_Decision:
		if e.Decision.By == "timeout" {
			s.note("nobody answered, so it was not done")
		}
	case *turnv1.TurnEvent_Notice:
		s.note(e.Notice.Text)
	}
}

func (s *screen) started(attempt uint32) {
	if attempt > s.attempt && s.attempt > 0 || attempt > 1 && s.attempt == 0 {
		s.note(fmt.Sprintf("its worker was lost, it goes on (attempt %d)", attempt))
	}
	if attempt != s.attempt {
		s.void()
	}
	s.attempt = attempt
}

func (s *screen) finished(f *turnv1.ToolFinished) {
	if s.calls[f.CallId] {
		return
	}
	s.calls[f.CallId] = true
	sign := "✓"
	if !f.Ok {
		sign = "✗"
	}
	s.line(fmt.Sprintf("%s %s  %s", sign, f.Tool, (time.Duration(f.DurationMs) * time.Millisecond).Round(10*time.Millisecond)))
}

// text brings a step up to date.
func (s *screen) text(d *turnv1.TextDelta) {
	if s.quiet {
		return
	}
	st := s.steps[d.Seq]
	if st == nil {
		st = &step{}
		s.steps[d.Seq] = st
		s.endLine()
	}
	s.open = st
	if d.Snapshot {
		st.fresh = d.Text
	} else {
		st.fresh += d.Text
	}
	s.sync(st)
}

// sync writes what fresh has beyond what was written; where the two differ, all of fresh.
func (s *screen) sync(st *step) {
	switch {
	case strings.HasPrefix(st.written, st.fresh):
		return
	case strings.HasPrefix(st.fresh, st.written):
		s.write(st.fresh[len(st.written):])
	default:
		s.endLine()
		s.write(st.fresh)
	}
	st.written = st.fresh
}

// final writes what is missing of the reply, and how the turn ended if not as usual.
func (s *screen) final(f *turnv1.Final) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.quiet && f.Text != "" {
		st := s.open
		if st == nil {
			s.endLine()
			st = &step{}
		}
		if st.written != f.Text {
			if !strings.HasPrefix(f.Text, st.written) {
				s.endLine()
				st.written = ""
			}
			s.write(f.Text[len(st.written):])
		}
	}
	s.endLine()
	switch f.Outcome {
	case turnv1.Outcome_OUTCOME_INTERRUPTED:
		s.note("interrupted")
	case turnv1.Outcome_OUTCOME_BUDGET:
		s.note("stopped: the turn used up its calls of the model (agent.max_turns)")
	}
	if f.Error != "" {
		s.line("! " + flat(f.Error, 500))
	}
}

// tell writes a line that belongs to no turn.
func (s *screen) tell(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(text)
}

// note writes a line once a turn.
func (s *screen) note(text string) {
	if !s.said[text] {
		s.said[text] = true
		s.line("(" + flat(text, 500) + ")")
	}
}

// line writes a line of its own, dimmed: it is about the answer, not part of it.
func (s *screen) line(text string) {
	s.endLine()
	text = clean(text)
	if s.ascii {
		text = plainSigns.Replace(text)
	}
	if s.colour {
		text = "\x1b[2m" + text + "\x1b[0m"
	}
	_, _ = io.WriteString(s.w, text+"\n")
}

func (s *screen) write(text string) {
	text = clean(text)
	if text == "" {
		return
	}
	_, _ = io.WriteString(s.w, text)
	s.midLine = !strings.HasSuffix(text, "\n")
}

func (s *screen) endLine() {
	if s.midLine {
		_, _ = io.WriteString(s.w, "\n")
		s.midLine = false
	}
}

// plainSigns take the place of the chat's own signs where nothing but ASCII is shown.
var plainSigns = strings.NewReplacer("→", "->", "✓", "ok", "✗", "failed", "✉", "*", "›", ">", "…", "...", "“", `"`, "”", `"`, "�", "?")

// clean takes control characters out: a terminal obeys what it is sent.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return -1
		case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
			return '�'
		}
		return r
	}, text)
}

// flat makes one line of a text, at most n characters long.
func flat(text string, n int) string {
	text = strings.Join(strings.Fields(clean(text)), " ")
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
