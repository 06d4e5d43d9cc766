package turn

import (
	"fmt"
	"strings"
	"testing"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// kindOf names an event.
func kindOf(e *turnv1.TurnEvent) string {
	switch e.Event.(type) {
	case *turnv1.TurnEvent_Queued:
		return "queued"
	case *turnv1.TurnEvent_Started:
		return "started"
	case *turnv1.TurnEvent_Text:
		return "text"
	case *turnv1.TurnEvent_ToolStarted:
		return "tool_started"
	case *turnv1.TurnEvent_ToolProgress:
		return "tool_progress"
	case *turnv1.TurnEvent_ToolFinished:
		return "tool_finished"
	case *turnv1.TurnEvent_Approval:
		return "approval"
	case *turnv1.TurnEvent_Decision:
		return "decision"
	case *turnv1.TurnEvent_Notice:
		return "notice"
	case *turnv1.TurnEvent_Final:
		return "final"
	}
	return fmt.Sprintf("%T", e.Event)
}

// A screen shows what a follower was sent, as a client would.
type screen struct {
	t     *testing.T
	steps map[uint32]string
	kinds []string
	final *turnv1.Final
}

func (s *screen) show(e *turnv1.TurnEvent) {
	s.kinds = append(s.kinds, kindOf(e))
	switch ev := e.Event.(type) {
	case *turnv1.TurnEvent_Started:
		s.steps = map[uint32]string{}
	case *turnv1.TurnEvent_Text:
		if ev.Text.Snapshot {
			s.steps[ev.Text.Seq] = ""
		}
		if s.steps == nil {
			s.t.Errorf("text before the start: %v", e)
			return
		}
		s.steps[ev.Text.Seq] += ev.Text.Text
	case *turnv1.TurnEvent_Final:
		s.final = ev.Final
	}
}

// drain shows all that waits for a follower.
func (s *screen) drain(f *feed, w *follower) {
	for {
		e, _ := f.next(w)
		if e == nil {
			return
		}
		s.show(e)
	}
}

func delta(seq uint32, text string) *turnv1.TextDelta { return &turnv1.TextDelta{Seq: seq, Text: text} }

func TestSlowFollowerGetsAllTextInFewEventsAndEveryOtherEvent(t *testing.T) {
	f := newFeed("turn")
	f.started(1, "agent-1")
	slow, quick := f.join(), f.join()
	a, b := &screen{t: t}, &screen{t: t}
	var want strings.Builder
	for i := range 1000 {
		word := fmt.Sprintf("word%d ", i)
		want.WriteString(word)
		f.text(delta(1, word))
		b.drain(f, quick)
		if i%250 == 0 {
			f.toolStarted(&turnv1.ToolStarted{CallId: fmt.Sprint(i), Tool: "work"})
			f.toolFinished(&turnv1.ToolFinished{CallId: fmt.Sprint(i), Tool: "work", Ok: true})
		}
	}
	f.ask(&turnv1.ApprovalRequest{ApprovalId: "ap"})
	f.decided("ap", false, "timeout")
	f.finish(&turnv1.Final{Text: "end"})
	a.drain(f, slow)
	b.drain(f, quick)
	for name, s := range map[string]*screen{"slow": a, "quick": b} {
		if s.steps[1] != want.String() {
			t.Errorf("the %s follower shows %d bytes of text, want %d", name, len(s.steps[1]), want.Len())
		}
		rest := strings.ReplaceAll(strings.Join(s.kinds, " ")+" ", "text ", "")
		if rest != "started "+strings.Repeat("tool_started tool_finished ", 4)+"approval decision final " {
			t.Errorf("the %s follower was sent %q", name, rest)
		}
	}
	if n := strings.Count(strings.Join(a.kinds, " "), "text"); n > 5 {
		t.Errorf("the slow follower was sent %d texts", n)
	}
}

func TestLateFollowerGetsASnapshot(t *testing.T) {
	f := newFeed("turn")
	f.queued(2)
	f.started(1, "agent-1")
	f.text(delta(1, "first "))
	f.text(delta(3, "thi"))
	f.toolStarted(&turnv1.ToolStarted{CallId: "c1"})
	f.toolStarted(&turnv1.ToolStarted{CallId: "c2"})
	f.toolFinished(&turnv1.ToolFinished{CallId: "c1"})
	f.ask(&turnv1.ApprovalRequest{ApprovalId: "a1"})
	f.ask(&turnv1.ApprovalRequest{ApprovalId: "a1", DeadlineMs: 5})
	w := f.join()
	f.text(delta(3, "rd"))
	s := &screen{t: t}
	s.drain(f, w)
	if got := strings.Join(s.kinds, " "); got != "started text text tool_started approval" {
		t.Errorf("a late follower was sent %q", got)
	}
	if s.steps[1] != "first " || s.steps[3] != "third" {
		t.Errorf("it shows %v", s.steps)
	}
}

func TestNewAttemptVoidsText(t *testing.T) {
	f := newFeed("turn")
	f.started(1, "agent-1")
	slow, quick := f.join(), f.join()
	a, b := &screen{t: t}, &screen{t: t}
	f.text(delta(1, "old"))
	b.drain(f, quick)
	f.queued(0)
	f.started(2, "agent-2")
	f.text(delta(1, "new"))
	a.drain(f, slow)
	b.drain(f, quick)
	for _, s := range []*screen{a, b} {
		if s.steps[1] != "new" {
			t.Errorf("shows %q after %v", s.steps[1], s.kinds)
		}
	}
	if got := strings.Join(a.kinds, " "); got != "started queued started text" {
		t.Errorf("the slow follower was sent %q", got)
	}
}

func TestSnapshotOfTheAgentReplacesItsStep(t *testing.T) {
	f := newFeed("turn")
	f.started(1, "agent-1")
	w, s := f.join(), &screen{t: t}
	f.text(delta(1, "wrong"))
	s.drain(f, w)
	f.text(&turnv1.TextDelta{Seq: 1, Text: "right", Snapshot: true})
	f.text(delta(1, " on"))
	s.drain(f, w)
	if s.steps[1] != "right on" {
		t.Errorf("shows %q", s.steps[1])
	}
	f.text(&turnv1.TextDelta{Seq: 1, Snapshot: true})
	s.drain(f, w)
	if s.steps[1] != "" {
		t.Errorf("shows %q after an empty snapshot", s.steps[1])
	}
}

func TestLargeTextIsCutIntoEventsAtCharacters(t *testing.T) {
	f := newFeed("turn")
	f.started(1, "agent-1")
	w, s := f.join(), &screen{t: t}
	text := "x" + strings.Repeat("é", maxDelta)
	f.text(delta(1, text))
	s.drain(f, w)
	if s.steps[1] != text {
		t.Errorf("shows %d bytes, want %d", len(s.steps[1]), len(text))
	}
	if n := len(s.kinds); n != 4 {
		t.Errorf("sent as %d events", n)
	}
}

func TestKeptTextIsBounded(t *testing.T) {
	f := newFeed("turn")
	f.started(1, "agent-1")
	for step := range uint32(40) {
		for range 100 {
			f.text(delta(step, strings.Repeat("x", 4<<10)))
		}
		if f.bytes > maxPartial {
			t.Fatalf("%d bytes are kept", f.bytes)
		}
	}
	total := 0
	for _, s := range f.steps {
		total += len(s.text)
	}
	if total != f.bytes || f.steps[len(f.steps)-1].seq != 39 {
		t.Errorf("%d bytes are kept, %d counted; last step %d", total, f.bytes, f.steps[len(f.steps)-1].seq)
	}
}

func TestFollowerThatIsFarBehindIsLetGo(t *testing.T) {
	f := newFeed("turn")
	w := f.join()
	for range maxPending + 10 {
		f.notice("!")
	}
	n := 0
	for {
		e, overrun := f.next(w)
		if e == nil {
			if !overrun {
				t.Error("it was not told that it missed something")
			}
			break
		}
		n++
	}
	if n != maxPending || len(f.followers) != 0 {
		t.Errorf("it got %d events; %d followers are left", n, len(f.followers))
	}
}

func TestProgressIsDroppedForTheSlow(t *testing.T) {
	f := newFeed("turn")
	w := f.join()
	for range 10 * droppablePending {
		f.toolProgress("c", "line")
	}
	if len(w.pending) != droppablePending {
		t.Errorf("%d lines wait", len(w.pending))
	}
}

func TestFollowOfAnEndedTurnIsAnsweredAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", func(a *agentRun) error {
			return a.finishWith(&turnv1.Message{Content: "hello", Seq: 1, Usage: &turnv1.Usage{OutputTokens: 7}})
		})
		a := r.accept("main", "m", "hi")
		r.final(a.TurnID)
		events := r.follow(a.TurnID)
		if len(events) != 1 || events[0].Seq != 1 || events[0].TurnId != a.TurnID {
			t.Fatalf("events are %v", events)
		}
		f := events[0].GetFinal()
		if f.Text != "hello" || f.SessionId != a.SessionID || f.Outcome != turnv1.Outcome_OUTCOME_COMPLETED || f.Usage.GetOutputTokens() != 7 {
			t.Fatalf("final is %v", f)
		}
	})
}

func TestFollowNumbersItsEventsAndSaysHowManyAreAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first := r.accept("main", "1", "one")
		r.accept("main", "2", "two")
		third := r.accept("main", "3", "three")
		done := make(chan []*turnv1.TurnEvent)
		go func() { done <- r.follow(third.TurnID) }()
		r.agent("agent-1", obey(never))
		events := <-done
		var ahead []uint32
		for i, e := range events {
			if e.Seq != uint64(i+1) {
				t.Errorf("event %d has seq %d", i, e.Seq)
			}
			if q := e.GetQueued(); q != nil {
				ahead = append(ahead, q.Ahead)
			}
		}
		if fmt.Sprint(ahead) != "[2 1 0]" {
			t.Errorf("ahead were %v", ahead)
		}
		r.final(first.TurnID)
	})
}

// A client that stops reading must not hold up anything but itself.
func TestFollowerThatNeverReadsHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.accept("main", "m", "call:work hello")
		r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("done")}})
		stuck, sent := make(chan struct{}), make(chan error, 1)
		go func() {
			sent <- r.hub.Follow(t.Context(), a.TurnID, func(*turnv1.TurnEvent) error {
				<-stuck
				return nil
			})
		}()
		r.agent("agent-1", obey(never))
		if got := r.final(a.TurnID).Text; got != "done hello" {
			t.Fatalf("final text %q", got)
		}
		close(stuck)
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	})
}

// A follower that does not read has one mark of each step to come back to, in whatever order the steps are written.
func TestAStuckFollowerHasOneMarkOfEachStep(t *testing.T) {
	f := newFeed("turn")
	f.started(1, "agent-1")
	stuck := f.join()
	want := map[uint32]string{}
	for i := range uint32(10_000) {
		word := fmt.Sprint(i, " ")
		f.text(delta(1+i%3, word))
		want[1+i%3] += word
		if i%5000 == 0 {
			f.notice("!")
		}
	}
	if n := len(stuck.pending); n > 6 {
		t.Errorf("%d items wait for it", n)
	}
	s := &screen{t: t}
	s.drain(f, stuck)
	f.text(delta(2, "on"))
	want[2] += "on"
	s.drain(f, stuck)
	if fmt.Sprint(s.steps) != fmt.Sprint(want) {
		t.Error("it does not show all text in order")
	}
}

// What is kept of a turn is bounded in steps as it is in bytes, and a follower holds on to nothing of what is not kept.
func TestKeptStepsAreBounded(t *testing.T) {
	for name, text := range map[string]*turnv1.TextDelta{
		"small steps": {Text: "x"}, "empty ones": {Snapshot: true}, "large ones": {Text: strings.Repeat("x", 64<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeed("turn")
			f.started(1, "agent-1")
			stuck, quick := f.join(), f.join()
			s := &screen{t: t}
			for seq := range uint32(4 * maxKeptSteps) {
				f.text(&turnv1.TextDelta{Seq: seq, Text: text.Text, Snapshot: text.Snapshot})
				s.drain(f, quick)
			}
			if len(f.steps) > maxKeptSteps || f.bytes > maxPartial {
				t.Errorf("%d steps of %d bytes are kept", len(f.steps), f.bytes)
			}
			for who, w := range map[string]*follower{"the stuck": stuck, "the quick": quick} {
				if len(w.read) > len(f.steps) || len(w.pending) > len(f.steps)+1 {
					t.Errorf("%s follower holds %d steps and waits for %d items", who, len(w.read), len(w.pending))
				}
			}
			if len(s.steps) != 4*maxKeptSteps {
				t.Errorf("the quick follower shows %d steps", len(s.steps))
			}
			late := &screen{t: t}
			late.drain(f, stuck)
			if len(late.steps) != len(f.steps) || late.steps[4*maxKeptSteps-1] != text.Text {
				t.Errorf("the stuck follower shows %d steps of %d", len(late.steps), len(f.steps))
			}
		})
	}
}
