package turn

import (
	"slices"
	"sync"
	"unicode/utf8"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

const (
	// maxPartial bounds the text of a running turn that is kept for late followers: earlier steps go first, then the
	// rest of the current one is cut here and comes with the final reply.
	maxPartial = 1 << 20
	// maxKeptSteps bounds the steps of it, over five times what a turn of 90 rounds has: a step costs more than its text.
	maxKeptSteps = 512
	// maxDelta bounds the text in one event, well under the message limit.
	maxDelta = 256 << 10
	// droppablePending is how far a follower may be behind before it gets no more tool progress.
	droppablePending = 64
	// maxPending is how far a follower may be behind in events that are never dropped. Beyond it is let go, and may
	// follow anew. A turn of 90 rounds with 8 calls each makes under 2,000.
	maxPending = 4096
)

// A feed is what can be told of one open turn: its state for those who come late, and its followers. Text is kept once
// for all of them: a follower's queue holds only one mark for each step that there is more of, and it takes all there is
// when it gets there. So a slow one loses deltas but no text that is still kept, and costs no memory. It is safe for
// concurrent use; publishing never waits.
type feed struct {
	turnID string

	mu        sync.Mutex
	ahead     *turnv1.TurnEvent // queued, or
	begun     *turnv1.TurnEvent // started: text of the attempt follows
	steps     []*stepText
	bytes     int
	tools     []*turnv1.ToolStarted // that run
	asked     []*turnv1.ApprovalRequest
	final     *turnv1.TurnEvent
	followers map[*follower]struct{}
}

// stepText is the text of one step of the current attempt.
type stepText struct {
	seq   uint32
	text  []byte
	whole bool // replaced an earlier text of the step
}

// A follower is one reader of a feed. The feed's lock guards it.
type follower struct {
	wake    chan struct{}
	pending []item
	read    map[*stepText]*reading
	overrun bool
}

// A reading is how far a follower is with a step.
type reading struct {
	to     int
	marked bool // pending has a mark of the step
}

// An item is an event to send, or a mark that a step has more text.
type item struct {
	event *turnv1.TurnEvent
	step  *stepText
	late  bool // the follower came after the step began: its text is a snapshot
}

func newFeed(turnID string) *feed {
	return &feed{turnID: turnID, followers: map[*follower]struct{}{}}
}

// join adds a follower and queues for it what has happened so far.
func (f *feed) join() *follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &follower{wake: make(chan struct{}, 1), read: map[*stepText]*reading{}}
	if f.begun != nil {
		w.pending = append(w.pending, item{event: f.begun})
	}
	for _, s := range f.steps {
		w.mark(item{step: s, late: true})
	}
	for _, t := range f.tools {
		w.pending = append(w.pending, item{event: toolStartedEvent(t)})
	}
	for _, a := range f.asked {
		w.pending = append(w.pending, item{event: approvalEvent(a)})
	}
	for _, e := range []*turnv1.TurnEvent{f.ahead, f.final} {
		if e != nil {
			w.pending = append(w.pending, item{event: e})
		}
	}
	f.followers[w] = struct{}{}
	return w
}

func (f *feed) leave(w *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.followers, w)
}

// next takes the next event of w; nil if there is none now. overrun says that w was too slow for the events that must
// not be lost.
func (f *feed) next(w *follower) (ev *turnv1.TurnEvent, overrun bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(w.pending) > 0 {
		it := w.pending[0]
		if it.event != nil {
			w.pop()
			return &turnv1.TurnEvent{TurnId: f.turnID, Event: it.event.Event}, false
		}
		if ev := w.delta(it); ev != nil {
			ev.TurnId = f.turnID
			return ev, false
		}
	}
	return nil, w.overrun
}

// mark queues a mark of a step, unless there is one.
func (w *follower) mark(it item) {
	r := w.read[it.step]
	if r == nil {
		r = &reading{}
		w.read[it.step] = r
	}
	if !r.marked {
		r.marked = true
		w.pending = append(w.pending, it)
	}
}

// forget lets go of a step and its mark.
func (w *follower) forget(s *stepText) {
	if r := w.read[s]; r != nil && r.marked {
		w.pending = slices.DeleteFunc(w.pending, func(it item) bool { return it.step == s })
	}
	delete(w.read, s)
}

func (w *follower) pop() {
	w.pending[0] = item{}
	if w.pending = w.pending[1:]; len(w.pending) == 0 {
		w.pending = nil // lets go of the array
	}
}

// delta returns the text of a step that w has not had, and removes the mark once there is no more.
func (w *follower) delta(it item) *turnv1.TurnEvent {
	r := w.read[it.step]
	from := r.to
	to := min(len(it.step.text), from+maxDelta)
	for to < len(it.step.text) && to > from && !utf8.RuneStart(it.step.text[to]) {
		to--
	}
	r.to = to
	if to == len(it.step.text) {
		r.marked = false
		w.pop()
	}
	if to == from && !(from == 0 && it.step.whole) {
		return nil
	}
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Text{Text: &turnv1.TextDelta{
		Seq: it.step.seq, Text: string(it.step.text[from:to]), Snapshot: from == 0 && (it.late || it.step.whole),
	}}}
}

// push queues an event that no follower loses. f.mu must be held.
func (f *feed) push(e *turnv1.TurnEvent) {
	for w := range f.followers {
		if len(w.pending) >= maxPending {
			w.overrun = true
			delete(f.followers, w)
		} else {
			w.pending = append(w.pending, item{event: e})
		}
		w.signal()
	}
}

func (w *follower) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// queued says that the turn waits behind others.
func (f *feed) queued(ahead uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.final != nil || f.ahead != nil && f.ahead.GetQueued().Ahead == ahead {
		return
	}
	f.ahead = &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Queued{Queued: &turnv1.Queued{Ahead: ahead}}}
	f.push(f.ahead)
}

// started begins an attempt: text of an earlier one is void, also where it was not yet sent.
func (f *feed) started(attempt uint32, worker string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead, f.steps, f.bytes = nil, nil, 0
	for w := range f.followers {
		w.pending = slices.DeleteFunc(w.pending, func(it item) bool { return it.step != nil })
		clear(w.read)
	}
	f.begun = &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Started{Started: &turnv1.Started{Attempt: attempt, Worker: worker}}}
	f.push(f.begun)
}

// text adds to the text of a step, or replaces it if the delta is a snapshot.
func (f *feed) text(d *turnv1.TextDelta) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.final != nil || d.GetText() == "" && !d.GetSnapshot() {
		return
	}
	s := f.step(d.Seq, d.Snapshot)
	for (f.bytes+len(d.Text) > maxPartial || len(f.steps) > maxKeptSteps) && f.steps[0] != s {
		f.forget(f.steps[0])
		f.steps = slices.Delete(f.steps, 0, 1)
	}
	add := cut(d.Text, maxPartial-f.bytes)
	s.text = append(s.text, add...)
	f.bytes += len(add)
	for w := range f.followers {
		w.mark(item{step: s})
		w.signal()
	}
}

// step returns the text of a step to add to. f.mu must be held.
func (f *feed) step(seq uint32, replace bool) *stepText {
	at := slices.IndexFunc(f.steps, func(s *stepText) bool { return s.seq == seq })
	if at >= 0 && !replace {
		return f.steps[at]
	}
	s := &stepText{seq: seq, whole: replace}
	if at < 0 {
		f.steps = append(f.steps, s)
		return s
	}
	f.forget(f.steps[at])
	f.steps[at] = s
	return s
}

// forget takes a step out of what is kept and out of what followers wait for. f.mu must be held.
func (f *feed) forget(s *stepText) {
	f.bytes -= len(s.text)
	for w := range f.followers {
		w.forget(s)
	}
}

func (f *feed) notice(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.push(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_Notice{Notice: &turnv1.Notice{Text: text}}})
}

func (f *feed) toolStarted(t *turnv1.ToolStarted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tools = append(f.tools, t)
	f.push(toolStartedEvent(t))
}

// toolProgress is dropped for followers that are behind.
func (f *feed) toolProgress(callID, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := &turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolProgress{ToolProgress: &turnv1.ToolProgress{CallId: callID, Text: text}}}
	for w := range f.followers {
		if len(w.pending) < droppablePending {
			w.pending = append(w.pending, item{event: e})
			w.signal()
		}
	}
}

func (f *feed) toolFinished(t *turnv1.ToolFinished) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tools = slices.DeleteFunc(f.tools, func(s *turnv1.ToolStarted) bool { return s.CallId == t.CallId })
	f.push(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolFinished{ToolFinished: t}})
}

// ask shows a request for a person's yes. The same request again has a new deadline.
func (f *feed) ask(a *turnv1.ApprovalRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(slices.DeleteFunc(f.asked, sameApproval(a.ApprovalId)), a)
	f.push(approvalEvent(a))
}

// decided shows the answer to a question, and says whether it was open until now.
func (f *feed) decided(id string, approved bool, by string) (open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if open = slices.ContainsFunc(f.asked, sameApproval(id)); !open {
		return false
	}
	f.asked = slices.DeleteFunc(f.asked, sameApproval(id))
	f.push(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_Decision{Decision: &turnv1.ApprovalDecision{ApprovalId: id, Approved: approved, By: by}}})
	return true
}

func sameApproval(id string) func(*turnv1.ApprovalRequest) bool {
	return func(a *turnv1.ApprovalRequest) bool { return a.ApprovalId == id }
}

// finish is the last event.
func (f *feed) finish(final *turnv1.Final) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = nil
	f.final = finalEvent(final)
	f.push(f.final)
}

func toolStartedEvent(t *turnv1.ToolStarted) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolStarted{ToolStarted: t}}
}

func approvalEvent(a *turnv1.ApprovalRequest) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Approval{Approval: a}}
}

func finalEvent(f *turnv1.Final) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Final{Final: f}}
}
