package agent

import (
	"context"
	"sync"
	"time"

	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// activityEvery is how often a run that has nothing to say says that it is alive. The protocol asks for 10 s.
const activityEvery = 5 * time.Second

// A feed passes the events of a run to the supervisor from one goroutine. Text that waits is joined, so a slow reader
// holds up neither the provider nor the turn, and costs no more memory than the text itself. It is safe for concurrent
// use.
type feed struct {
	send func(*agentv1.RunEvent) error
	wake chan struct{}

	mu      sync.Mutex
	pending []*agentv1.RunEvent
	sending bool
	doing   string
	closed  bool
	idle    chan struct{} // closed and replaced when all that waited is sent
}

func newFeed(send func(*agentv1.RunEvent) error) *feed {
	return &feed{send: send, wake: make(chan struct{}, 1), doing: "starting", idle: make(chan struct{})}
}

// run sends until close is called, ctx ends or the stream breaks.
func (f *feed) run(ctx context.Context) {
	tick := time.NewTicker(activityEvery)
	defer tick.Stop()
	defer f.close()
	for {
		for {
			e := f.next()
			if e == nil {
				break
			}
			if f.send(e) != nil {
				return
			}
			tick.Reset(activityEvery)
		}
		select {
		case _, open := <-f.wake:
			if !open {
				return
			}
		case <-tick.C:
			f.push(f.activity())
		case <-ctx.Done():
			return
		}
	}
}

// next takes the first event that waits; nil says that all were sent.
func (f *feed) next() *agentv1.RunEvent {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) == 0 {
		f.sending = false
		close(f.idle)
		f.idle = make(chan struct{})
		return nil
	}
	e := f.pending[0]
	f.pending[0] = nil
	f.pending = f.pending[1:]
	f.sending = true
	return e
}

// close ends run after what it is sending, and lets flush return.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed, f.pending = true, nil
		close(f.wake)
		close(f.idle)
		f.idle = make(chan struct{})
	}
}

// flush waits until what was pushed before is sent, or ctx ends.
func (f *feed) flush(ctx context.Context) {
	for {
		f.mu.Lock()
		done, idle := f.closed || len(f.pending) == 0 && !f.sending, f.idle
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) push(e *agentv1.RunEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.pending = append(f.pending, e)
	f.signal()
}

// signal wakes run. f.mu must be held, as close closes the channel.
func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// text adds to the text of a step.
func (f *feed) text(seq uint32, text string) {
	if text == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	if n := len(f.pending); n > 0 {
		if last := f.pending[n-1].GetText(); last != nil && last.Seq == seq {
			last.Text += text
			return
		}
	}
	f.pending = append(f.pending, textEvent(&turnv1.TextDelta{Seq: seq, Text: text}))
	f.signal()
}

// replace makes text all that a step has said so far.
func (f *feed) replace(seq uint32, text string) {
	f.push(textEvent(&turnv1.TextDelta{Seq: seq, Text: text, Snapshot: true}))
}

// notice tells the person something beside the answer.
func (f *feed) notice(text string) {
	f.push(&agentv1.RunEvent{Event: &agentv1.RunEvent_Notice{Notice: &turnv1.Notice{Text: text}}})
}

// at notes what the turn is doing, for the signs of life.
func (f *feed) at(doing string) {
	f.mu.Lock()
	f.doing = doing
	f.mu.Unlock()
}

// now returns what the turn is doing.
func (f *feed) now() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.doing
}

func (f *feed) activity() *agentv1.RunEvent {
	return &agentv1.RunEvent{Event: &agentv1.RunEvent_Activity{Activity: &agentv1.Activity{Doing: f.now()}}}
}

func textEvent(d *turnv1.TextDelta) *agentv1.RunEvent {
	return &agentv1.RunEvent{Event: &agentv1.RunEvent_Text{Text: d}}
}
