package event

import (
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

var night = time.Date(2026, 3, 1, 22, 51, 0, 0, time.UTC)

// script makes events of lines "seconds kind worker turn key=value…"; the message is the rest after " # ".
func script(t *testing.T, lines ...string) []store.Event {
	t.Helper()
	var out []store.Event
	for i, line := range lines {
		text, message, _ := strings.Cut(line, " # ")
		f := strings.Fields(text)
		at, err := time.ParseDuration(f[0] + "s")
		if err != nil {
			t.Fatal(err)
		}
		e := store.Event{ID: int64(i + 1), Time: night.Add(at), Kind: f[1], Message: message, Fields: map[string]string{}}
		for _, word := range f[2:] {
			switch k, v, ok := strings.Cut(word, "="); {
			case ok:
				e.Fields[k] = v
			case strings.HasPrefix(word, "t-"):
				e.TurnID = word
			default:
				e.Worker = word
			}
		}
		out = append(out, e)
	}
	return out
}

// told writes stories as lines, to be compared.
func told(stories []*Story) string {
	var b strings.Builder
	for _, s := range stories {
		b.WriteString(s.At.Format("15:04:05") + " " + s.Kind + " " + s.Worker)
		if s.Message != "" {
			b.WriteString(": " + s.Message)
		}
		if s.Next != "" {
			b.WriteString(" → " + s.Next)
		}
		b.WriteString("\n")
		for _, h := range s.Turns {
			b.WriteString("  " + h.Turn + chatOf(h) + ": " + h.Seen(s.At) + "\n")
		}
	}
	return b.String()
}

func chatOf(h *Held) string {
	if h.Platform == "" {
		return ""
	}
	return " of " + h.Platform + " " + h.Chat
}

func TestTimeline(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   string
	}{
		{"nothing", nil, ""},
		{"a death and what became of its turns", []string{
			"0 turn_leased agent-1 t-1",
			"0 turn_leased agent-1 t-2",
			"1 turn_finished agent-1 t-2 outcome=completed",
			"10 turn_requeued agent-1 t-1 # connection lost",
			"10.002 turn_leased agent-2 t-1",
			"10.005 worker_exited agent-1 cause=crashed code=2 # panic: the sky is falling",
			"10.006 worker_restarting agent-1 delay=0s # at once",
			"10.065 worker_ready agent-1",
			"14 turn_finished agent-2 t-1 outcome=completed",
		}, `22:51:10 death agent-1: panic: the sky is falling → served again after 60ms
  t-1: taken up by agent-2 after 0s, answered after 4s
`},
		{"a death that is noticed before its broken connections", []string{
			"0 turn_leased agent-1 t-1",
			"10 worker_exited agent-1 cause=killed signal=SIGKILL # SIGKILL from outside the supervisor",
			"10.001 turn_requeued agent-1 t-1 # connection lost",
			"10.1 worker_ready agent-1",
			"10.2 turn_leased agent-1 t-1",
		}, `22:51:10 death agent-1: SIGKILL from outside the supervisor → served again after 100ms
  t-1: taken up by agent-1 after 200ms, not answered yet
`},
		{"out of restarts", []string{
			"0 worker_exited tools cause=crashed",
			"0 worker_restarting tools delay=1m3s # more than 5 failures",
			"0 worker_degraded tools # more than 5 failures",
		}, `22:51:00 death tools → next start after 1m3s: more than 5 failures
22:51:00 worker_degraded tools: more than 5 failures
`},
		{"a stop of the supervisor tells its workers' ends with it", []string{
			"0 supervisor_started # version 1",
			"1 turn_leased agent-1 t-1",
			"5 supervisor_stopping # draining for up to 1s",
			"6 turn_released agent-1 t-1",
			"6 worker_exited agent-1 cause=planned # end of the supervisor",
			"7 supervisor_started # version 1",
			"7.5 turn_leased agent-2 t-1",
			"9 turn_finished agent-2 t-1 outcome=completed",
		}, `22:51:00 supervisor_started : version 1
22:51:05 supervisor_stopping : draining for up to 1s → started again after 2s
  t-1: taken up by agent-2 after 2.5s, answered after 4s
22:51:07 supervisor_started : version 1
`},
		{"a start is told with what came of it", []string{
			"0 supervisor_started # version 1",
			"0.5 supervisor_ready # all required workers serve after 500ms",
			"9 supervisor_ready # again",
		}, `22:51:00 supervisor_started : version 1 → all required workers serve after 500ms
22:51:09 supervisor_ready : again
`},
		{"a supervisor that was killed", []string{
			"0 supervisor_started # version 1",
			"1 turn_leased agent-1 t-1",
			"9 supervisor_started # version 1",
			"9 turn_requeued agent-1 t-1 # the supervisor ended while the turn ran",
			"9.5 turn_parked supervisor t-1 outcome=parked # lost three times",
		}, `22:51:00 supervisor_started : version 1
22:51:09 supervisor_started : version 1; the one before it was killed, or the machine went down; last heard of 8s before
  t-1: its end came after 500ms: parked
22:51:09 turn_parked supervisor: turn t-1: lost three times
`},
		{"a supervisor that was killed long after anything happened", []string{
			"0 worker_ready tools",
			"39660 supervisor_started last_heard=2026-03-01T22:51:07.5Z # version 1",
		}, `09:52:00 supervisor_started : version 1; the one before it was killed, or the machine went down; last heard of 11h0m53s before
`},
		{"what happened last is heard of as well", []string{
			"0 worker_ready tools",
			"58 turn_leased agent-1 t-1",
			"60 supervisor_started last_heard=2026-03-01T22:51:07Z # version 1",
			"61 supervisor_started last_heard=garbage # version 1",
		}, `22:52:00 supervisor_started : version 1; the one before it was killed, or the machine went down; last heard of 2s before
  t-1: it waits to be taken up
22:52:01 supervisor_started : version 1; the one before it was killed, or the machine went down; last heard of 1s before
`},
		{"whose turn was cut", []string{
			"0 turn_leased agent-1 t-1 platform=telegram chat=4711",
			"1 worker_exited agent-1 cause=crashed # panic",
			"2 turn_leased agent-2 t-1 platform=telegram chat=4711",
		}, `22:51:01 death agent-1: panic
  t-1 of telegram 4711: taken up by agent-2 after 1s, not answered yet
`},
		{"a hung worker dies of it", []string{
			"0 worker_hung kanban # 3 health checks missed",
			"1 worker_hung tools # 3 health checks missed",
			"2 worker_exited kanban cause=hung # did not answer its health checks",
		}, `22:51:01 worker_hung tools: 3 health checks missed
22:51:02 death kanban: did not answer its health checks
`},
		{"a worker that an operator keeps down", []string{
			"0 worker_exited tools cause=operator # stop by operator (pid 9)",
			"0 worker_disabled tools # stopped by operator (pid 9)",
			"9 worker_exited kanban cause=operator # stop by operator (pid 9)",
			"9 worker_disabled kanban # stopped by operator (pid 9)",
			"60 worker_ready kanban",
			"70 worker_disabled agent-1 # stopped by operator (pid 9) while it waited",
		}, `22:51:00 death tools: stop by operator (pid 9) → kept down
22:51:09 death kanban: stop by operator (pid 9) → kept down, served again after 51s
22:52:10 worker_disabled agent-1: stopped by operator (pid 9) while it waited
`},
		{"a call whose outcome is unknown comes after the death that is why", []string{
			"0 call_unknown tools t-2 # Unknown.",
			"60 call_unknown kanban t-3 # Unknown.",
			"60 call_unknown tools t-1 # Unknown.",
			"60.01 worker_exited tools cause=crashed # SIGSEGV",
		}, `22:51:00 call_unknown tools: turn t-2: Unknown.
22:52:00 call_unknown kanban: turn t-3: Unknown.
22:52:00 death tools: SIGSEGV
22:52:00 call_unknown tools: turn t-1: Unknown.
`},
		{"a tool that fails again and again", []string{
			"0 call_failed plugin-weather t-1 tool=forecast # forecast failed: no route",
			"5 call_failed plugin-weather t-2 tool=forecast # forecast failed: no such city",
			"60 call_failed plugin-weather t-3 tool=forecast # forecast failed: no route",
			"70 call_failed plugin-weather t-4 tool=forecast # forecast failed: no route",
			"9000 call_failed plugin-weather t-5 tool=forecast # forecast failed: no route",
		}, `22:51:00 call_failed plugin-weather: turn t-1: forecast failed: no route → failed so 3 times, the last after 1m10s
22:51:05 call_failed plugin-weather: turn t-2: forecast failed: no such city
01:21:00 call_failed plugin-weather: turn t-5: forecast failed: no route
`},
		{"a platform that is not reached", []string{
			"0 adapter_connected gateway-telegram state=connected # telegram: connected",
			"1 adapter_message_refused gateway-telegram # telegram: a message was not taken: full",
			"10 adapter_degraded gateway-telegram state=degraded # telegram: degraded: no route",
			"160 adapter_deaf gateway-telegram state=deaf # telegram: deaf: no cause given",
			"190 adapter_state gateway-api state=down # api: does not answer: took too long",
			"192 adapter_state gateway-api state=connected # api: answers again, connected",
			"310 adapter_connected gateway-telegram state=connected down_seconds=301 # telegram: connected again after 5m1s",
			"400 adapter_conflict gateway-telegram state=conflict # telegram: conflict: another program polls",
		}, `22:51:10 adapter_degraded gateway-telegram: telegram: no route → then deaf
22:53:40 adapter_deaf gateway-telegram: telegram: no cause given → connected again after 5m1s
22:54:10 adapter_state gateway-api: api: does not answer: took too long → answers again after 2s
22:57:40 adapter_conflict gateway-telegram: telegram: another program polls → not over yet
`},
		{"a platform that comes and goes", []string{
			"0 adapter_degraded gateway-telegram state=degraded # telegram: degraded: no route",
			"3 adapter_connected gateway-telegram state=connected # telegram: connected again after 3s",
			"60 adapter_degraded gateway-telegram state=degraded # telegram: degraded: timeout",
			"61 adapter_connected gateway-telegram state=connected # telegram: connected again after 1s",
			"120 adapter_degraded gateway-telegram state=degraded # telegram: degraded: no route",
			"130 adapter_connected gateway-telegram state=connected # telegram: connected again after 10s",
			"9000 adapter_degraded gateway-telegram state=degraded # telegram: degraded: no route",
			"9001 adapter_connected gateway-telegram state=connected down_seconds=2 # telegram: connected again after 2s",
			"9005 adapter_degraded gateway-telegram state=degraded # telegram: degraded: no route",
		}, `22:51:00 adapter_degraded gateway-telegram: telegram: no route → connected again after 10s, 3 times so, the last after 2m0s
01:21:00 adapter_degraded gateway-telegram: telegram: no route → not over yet, 2 times so, the last after 5s
`},
		{"an outage that ends with its gateway or with the supervisor", []string{
			"0 adapter_conflict gateway-telegram state=conflict # telegram: conflict: another program polls",
			"60 worker_exited gateway-telegram cause=operator # restart by operator (pid 9)",
			"61 worker_ready gateway-telegram",
			"62 adapter_connected gateway-telegram state=connected # telegram: connected",
			"70 adapter_conflict gateway-telegram state=conflict # telegram: conflict: another program polls",
			"80 supervisor_started # version 1",
			"81 adapter_connected gateway-telegram state=connected # telegram: connected",
		}, `22:51:00 adapter_conflict gateway-telegram: telegram: another program polls → until its gateway ended, 2 times so, the last after 1m10s
22:52:00 death gateway-telegram: restart by operator (pid 9) → served again after 1s
22:52:20 supervisor_started : version 1; the one before it was killed, or the machine went down; last heard of 10s before
`},
		{"an outage whose adapter is switched off", []string{
			"0 adapter_degraded gateway-telegram state=degraded # telegram: degraded: no route",
			"60 worker_exited gateway-telegram cause=planned # the configuration asks for it no more",
			"60 worker_removed gateway-telegram",
			"70 worker_exited gateway-api cause=crashed # panic",
			"71 adapter_degraded gateway-api state=degraded # api: degraded: the port is taken",
			"80 worker_removed gateway-api",
			"90 adapter_degraded gateway-slack state=degraded # slack: degraded: no route",
			"95 worker_exited gateway-slack cause=crashed # panic",
			"96 worker_ready gateway-slack",
			"99 worker_removed gateway-slack",
		}, `22:51:00 adapter_degraded gateway-telegram: telegram: no route → until its adapter was switched off
22:52:00 death gateway-telegram: the configuration asks for it no more
22:52:10 death gateway-api: panic
22:52:11 adapter_degraded gateway-api: api: the port is taken → until its adapter was switched off
22:52:30 adapter_degraded gateway-slack: slack: no route → until its gateway ended
22:52:35 death gateway-slack: panic → served again after 1s
`},
		{"a replacement ahead of a limit", []string{
			"0 leak_suspected tools # grew from 14 to 300",
			"60 recycle_due tools # 80 %; it is replaced when it has nothing in hand",
			"70 recycling tools # 81 %",
			"70.1 worker_exited tools cause=planned # replaced: 81 %",
			"70.1 worker_restarting tools delay=0s # at once",
		}, `22:51:00 leak_suspected tools: grew from 14 to 300
22:52:00 recycle_due tools: 80 %; it is replaced when it has nothing in hand
22:52:10 recycling tools: 81 %
22:52:10 death tools: replaced: 81 % → started again at once
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := told(Tell(script(t, c.events...))); got != c.want {
				t.Errorf("told:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

// A story is part of a time if it was not over before: that is what "why was the bot silent?" asks for.
func TestWhatWasNotOverBeforeATimeIsPartOfIt(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   string // of those not over at 22:52:00
	}{
		"a platform that is not reached, and nothing since": {[]string{
			"0 adapter_degraded gateway-telegram state=degraded # telegram: degraded: no route",
		}, "adapter_degraded"},
		"one that was reached again": {[]string{
			"0 adapter_degraded gateway-telegram state=degraded", "59 adapter_connected gateway-telegram state=connected",
		}, ""},
		"one whose adapter was switched off": {[]string{
			"0 adapter_degraded gateway-telegram state=degraded", "59 worker_removed gateway-telegram",
		}, ""},
		"a worker that has not come back":      {[]string{"0 worker_exited agent-1 cause=crashed", "1 worker_restarting agent-1 delay=9m # failures"}, "death"},
		"one that came back afterwards":        {[]string{"0 worker_exited agent-1 cause=crashed", "61 worker_ready agent-1"}, "death"},
		"one that came back before":            {[]string{"0 worker_exited agent-1 cause=crashed", "59 worker_ready agent-1"}, ""},
		"one that was replaced afterwards":     {[]string{"0 worker_exited agent-1 cause=planned", "61 worker_ready agent-1"}, "death"},
		"one that is no longer wanted":         {[]string{"0 worker_exited agent-1 cause=planned"}, ""},
		"one that is removed while it is gone": {[]string{"0 worker_exited agent-1 cause=crashed", "9 worker_removed agent-1"}, ""},
		"one that is kept down":                {[]string{"0 worker_exited agent-1 cause=operator", "0 worker_disabled agent-1"}, "death"},
		"one that is kept down as it waits":    {[]string{"0 worker_disabled agent-1"}, "worker_disabled"},
		"a crash loop, of which the newest":    {[]string{"0 worker_exited agent-1 cause=crashed", "9 worker_exited agent-1 cause=crashed # again"}, "death: again"},
		"a stop of the supervisor": {[]string{
			"0 supervisor_started", "1 supervisor_ready", "9 supervisor_stopping", "61 supervisor_started", "62 supervisor_ready",
		}, "supervisor_stopping, supervisor_started"},
		"a stop before": {[]string{
			"0 supervisor_started", "1 supervisor_ready", "9 supervisor_stopping", "10 supervisor_started", "11 supervisor_ready",
		}, ""},
		"a start that takes long":     {[]string{"0 supervisor_started", "61 supervisor_ready"}, "supervisor_started"},
		"a worker of the one before":  {[]string{"0 worker_exited agent-1 cause=crashed", "9 supervisor_started", "10 supervisor_ready"}, ""},
		"what lasts no time":          {[]string{"0 leak_suspected tools"}, ""},
		"what is told of a start cut": {[]string{"0 supervisor_started # first", "61 supervisor_started # second"}, "supervisor_started: second"},
	} {
		t.Run(name, func(t *testing.T) {
			var left []string
			for _, s := range Tell(script(t, c.events...)) {
				if !s.Over(night.Add(time.Minute)) {
					text := s.Kind
					if m, _, _ := strings.Cut(s.Message, ";"); m != "" && strings.Contains(c.want, ": ") {
						text += ": " + m
					}
					left = append(left, text)
				}
			}
			if got := strings.Join(left, ", "); got != c.want {
				t.Errorf("not over: %q, want %q", got, c.want)
			}
		})
	}
}

// The incident of the field: a client crashes, the retried turn is cut by a restart of the service, and once more by a
// second one. There it was 12 minutes of silence; here the turn goes on each time, and the story is short.
func TestTheNightOfTwelveSilentMinutesIsToldInFewLines(t *testing.T) {
	stories := Tell(script(t,
		"-3600 supervisor_started # version 1",
		"0 turn_leased agent-1 t-7",
		"4 turn_requeued agent-1 t-7 # connection lost",
		"4 worker_exited agent-1 cause=crashed code=2 # panic: nil client",
		"4.01 turn_leased agent-2 t-7",
		"4.1 worker_ready agent-1",
		"60 supervisor_stopping # draining for up to 1m0s",
		"120 turn_released agent-2 t-7",
		"121 supervisor_started # version 1",
		"121.3 supervisor_ready",
		"121.4 turn_leased agent-1 t-7",
		"180 supervisor_stopping # draining for up to 1m0s",
		"240 turn_released agent-1 t-7",
		"241 supervisor_started # version 1",
		"241.3 supervisor_ready",
		"241.4 turn_leased agent-2 t-7",
		"250 turn_finished agent-2 t-7 outcome=completed",
	))
	text := told(stories)
	if n := strings.Count(text, "\n"); n >= 20 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	for _, want := range []string{
		"22:51:04 death agent-1: panic: nil client → served again after 100ms\n  t-7: taken up by agent-2 after 10ms, answered after 4m6s",
		"22:52:00 supervisor_stopping : draining for up to 1m0s → started again after 1m1s\n  t-7: taken up by agent-1 after 1m1s, answered after 3m10s",
		"22:54:00 supervisor_stopping : draining for up to 1m0s → started again after 1m1s\n  t-7: taken up by agent-2 after 1m1s, answered after 1m10s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing:\n%s\nin:\n%s", want, text)
		}
	}
}

func TestWhatBecameOfAnAnswerToAChat(t *testing.T) {
	cut := night
	for _, c := range []struct {
		row  *store.OutboxRow
		want string
	}{
		{nil, "taken up by agent-2 after 1s, answered after 3s"},
		{&store.OutboxRow{Platform: "telegram", State: store.OutboxSent, SentAt: cut.Add(4 * time.Second)}, ", in telegram after 4s"},
		{&store.OutboxRow{Platform: "telegram", State: store.OutboxPending}, ", not in telegram yet"},
		{&store.OutboxRow{Platform: "telegram", State: store.OutboxPending, Detail: "flood control"}, ", not in telegram yet: flood control"},
		{&store.OutboxRow{Platform: "telegram", State: store.OutboxRejected, Detail: "the bot was blocked"}, ", telegram refused it: the bot was blocked"},
		{&store.OutboxRow{Platform: "telegram", State: store.OutboxUnknown, Detail: "timeout"}, ", it may be in telegram or not: timeout"},
	} {
		h := Held{Turn: "t", Resumed: cut.Add(time.Second), ResumedBy: "agent-2", Ended: cut.Add(3 * time.Second), Outcome: "completed", Answer: c.row}
		if got := h.Seen(cut); !strings.HasSuffix(got, c.want) {
			t.Errorf("%q, want %q at its end", got, c.want)
		}
	}
}
