package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A scene is a machine after some events, each a second after the one before.
func scene(events ...any) (machine, []action, time.Time) {
	m, now := machine{}, epoch
	var actions []action
	for _, ev := range events {
		now = now.Add(time.Second)
		m, actions = m.step(now, 0.5, ev)
	}
	return m, actions, now
}

func TestMachineTransitions(t *testing.T) {
	restart, stop, end := evAsk{what: again}, evAsk{what: down}, evAsk{what: closing}
	for _, c := range []struct {
		name   string
		events []any
		state  State
		does   []action
	}{
		{"begins", []any{evBegin{}}, Starting, []action{doLaunch}},
		{"serves", []any{evBegin{}, evReady{}}, Ready, nil},
		{"dies and is started at once", []any{evBegin{}, evReady{}, evExit{}}, Starting, []action{doLaunch}},
		{"dies twice and waits", []any{evBegin{}, evReady{}, evExit{}, evReady{}, evExit{}}, Waiting, []action{doWait}},
		{"cannot start twice", []any{evBegin{}, evExit{failed: true}, evExit{failed: true}}, Failed, []action{doWait}},
		{"cannot start ever", []any{evBegin{}, evExit{failed: true, never: true}}, Failed, []action{doWait}},
		{"waits to its time", []any{evBegin{}, evExit{}, evExit{}, evTimer{}}, Starting, []action{doLaunch}},
		{"timer while it serves", []any{evBegin{}, evReady{}, evTimer{}}, Ready, nil},

		{"is stopped", []any{evBegin{}, evReady{}, stop}, Draining, []action{doDrain}},
		{"is stopped and drained", []any{evBegin{}, evReady{}, stop, evDrain{}}, Stopping, []action{doTerm}},
		{"is down", []any{evBegin{}, evReady{}, stop, evDrain{}, evExit{}}, Disabled, nil},
		{"dies in its drain", []any{evBegin{}, evReady{}, stop, evExit{}}, Disabled, nil},
		{"late drain of a dead one", []any{evBegin{}, evReady{}, stop, evExit{}, evDrain{}}, Disabled, nil},
		{"is down and started", []any{evBegin{}, evReady{}, stop, evDrain{}, evExit{}, restart}, Starting, []action{doLaunch}},
		{"restart", []any{evBegin{}, evReady{}, restart, evDrain{}, evExit{}}, Starting, []action{doLaunch}},
		{"restart while it waits", []any{evBegin{}, evExit{}, evExit{}, restart}, Starting, []action{doLaunch}},
		{"stop while it waits", []any{evBegin{}, evExit{}, evExit{}, stop}, Disabled, nil},
		{"stop while it starts", []any{evBegin{}, stop}, Stopping, []action{doAbort}},
		{"stop while it starts, gone", []any{evBegin{}, stop, evExit{failed: true}}, Disabled, nil},
		{"start during a stop", []any{evBegin{}, evReady{}, stop, restart, evDrain{}, evExit{}}, Starting, []action{doLaunch}},
		{"stop during a restart", []any{evBegin{}, evReady{}, restart, stop, evDrain{}, evExit{}}, Disabled, nil},

		{"hangs", []any{evBegin{}, evReady{}, evHung{}}, Stopping, []action{doQuit}},
		{"hangs in its drain", []any{evBegin{}, evReady{}, stop, evHung{}}, Stopping, []action{doQuit}},
		{"hung and gone", []any{evBegin{}, evReady{}, evHung{}, evExit{}}, Starting, []action{doLaunch}},
		{"stop of a hung one", []any{evBegin{}, evReady{}, evHung{}, stop, evExit{}}, Disabled, nil},
		{"replaced", []any{evBegin{}, evReady{}, evAsk{what: recycle}}, Draining, []action{doDrain}},
		{"replaced and gone", []any{evBegin{}, evReady{}, evAsk{what: recycle}, evDrain{}, evExit{}}, Starting, []action{doLaunch}},
		{"replaced in haste", []any{evBegin{}, evReady{}, evAsk{what: recycle, urgent: true}}, Stopping, []action{doTerm}},
		{"replaced, then in haste", []any{evBegin{}, evReady{}, evAsk{what: recycle}, evAsk{what: recycle, urgent: true}}, Stopping, []action{doTerm}},
		{"replaced while it is stopped", []any{evBegin{}, evReady{}, stop, evAsk{what: recycle, urgent: true}}, Draining, nil},
		{"stopped while it is replaced", []any{evBegin{}, evReady{}, evAsk{what: recycle}, stop, evDrain{}, evExit{}}, Disabled, nil},
		{"replaced while it starts", []any{evBegin{}, evAsk{what: recycle}}, Starting, nil},
		{"replaced while it waits", []any{evBegin{}, evExit{}, evExit{}, evAsk{what: recycle}}, Waiting, nil},
		{"over its memory", []any{evBegin{}, evReady{}, evOver{CauseMemory, "x"}}, Stopping, []action{doKill}},
		{"over its memory in a drain", []any{evBegin{}, evReady{}, stop, evOver{CauseMemory, "x"}, evExit{}}, Disabled, nil},
		{"over its memory while it starts", []any{evBegin{}, evOver{CauseMemory, "x"}}, Starting, nil},
		{"end in haste", []any{evBegin{}, evReady{}, end, evAsk{what: closing, urgent: true}}, Stopping, []action{doTerm}},
		{"hung while it starts", []any{evBegin{}, evHung{}}, Starting, nil},

		{"end", []any{evBegin{}, evReady{}, end, evDrain{}, evExit{}}, Exited, []action{doFinish}},
		{"end while it waits", []any{evBegin{}, evExit{}, evExit{}, end}, Exited, []action{doFinish}},
		{"end while it is down", []any{evBegin{}, evReady{}, stop, evExit{}, end}, Exited, []action{doFinish}},
		{"end before the beginning", []any{end}, Exited, []action{doFinish}},
		{"end during a restart", []any{evBegin{}, evReady{}, restart, end, evDrain{}, evExit{}}, Exited, []action{doFinish}},
		{"restart during the end", []any{evBegin{}, evReady{}, end, restart, evDrain{}, evExit{}}, Exited, []action{doFinish}},
		{"nothing after the end", []any{end, evBegin{}, restart, evTimer{}, evExit{}}, Exited, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, does, _ := scene(c.events...)
			if m.state != c.state || !slices.Equal(does, c.does) {
				t.Errorf("%s, does %v; want %s, %v", m.state, does, c.state, c.does)
			}
		})
	}
}

func TestRecoveryIsSaidOnce(t *testing.T) {
	m, _, now := scene(evBegin{}, evReady{}, evExit{}, evReady{})
	if m.history.Failures != 1 {
		t.Fatalf("%+v", m.history)
	}
	m, does := m.step(now.Add(59*time.Second), 0, evHealth{1})
	if len(does) > 0 {
		t.Errorf("proven too early: %v", does)
	}
	m, does = m.step(now.Add(61*time.Second), 0, evHealth{1})
	if !slices.Equal(does, []action{doCheer}) || m.history.blemished() {
		t.Errorf("not proven after a window: %v, %+v", does, m.history)
	}
	if _, does = m.step(now.Add(70*time.Second), 0, evHealth{2}); len(does) > 0 {
		t.Errorf("said twice: %v", does)
	}
}

func TestAStartByHandLeavesTheSlowLaneButNotTheBudget(t *testing.T) {
	m, _, now := scene(evBegin{})
	for m.state != Degraded {
		now = now.Add(time.Second)
		if m.state == Waiting {
			now = now.Add(time.Second)
			m, _ = m.step(now, 0.5, evTimer{})
		}
		m, _ = m.step(now, 0.5, evReady{})
		m, _ = m.step(now, 0.5, evExit{})
	}
	m, _ = m.step(now, 0.5, evAsk{what: again})
	if m.state != Starting || m.history.Slow != 1 {
		t.Errorf("%s, %+v", m.state, m.history)
	}
}

// Whatever happens in whatever order: there is never more than one process, a worker that is closing comes to its end, and
// no state is left without something that will move it on.
func TestMachineNeverGetsStuck(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m, now := machine{policy: Policy{Burst: 2, SlowLane: []time.Duration{time.Second}}}, epoch
		processes, waits := 0, false
		do := func(actions []action) {
			for _, a := range actions {
				switch a {
				case doLaunch:
					processes++
				case doWait:
					waits = true
				}
			}
		}
		step := func(ev any) {
			if _, ok := ev.(evExit); ok {
				if processes == 0 {
					return
				}
				processes--
			}
			var actions []action
			m, actions = m.step(now, rnd.Float64(), ev)
			do(actions)
			if processes > 1 {
				t.Fatalf("seed %d: %d processes", seed, processes)
			}
			if m.waits() && !waits {
				t.Fatalf("seed %d: waits for nothing", seed)
			}
			if m.alive() != (processes == 1) {
				t.Fatalf("seed %d: %s with %d processes", seed, m.state, processes)
			}
		}
		step(evBegin{})
		for range 200 {
			now = now.Add(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			events := []any{evReady{}, evHealth{rnd.Uint64N(3)}, evHung{}, evAsk{what: again}, evAsk{what: down},
				evAsk{what: recycle}, evAsk{what: recycle, urgent: true}, evOver{CauseMemory, "too much"}, evDrain{}, evExit{failed: rnd.IntN(2) == 0}, evTimer{}}
			step(events[rnd.IntN(len(events))])
		}
		step(evAsk{what: closing})
		step(evDrain{})
		step(evExit{})
		if m.state != Exited || m.intent != closing {
			t.Fatalf("seed %d: %s after the end", seed, m.state)
		}
	}
}

func (a action) String() string {
	return []string{"launch", "drain", "term", "quit", "kill", "abort", "wait", "finish", "cheer"}[a]
}

var _ fmt.Stringer = action(0)
