package event

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// A Story is one thing that happened, with what led to it and what followed, told from the events of all parts.
type Story struct {
	At      time.Time
	Kind    string // death, or the kind of its event
	Worker  string // empty: the supervisor
	PID     int
	Message string
	Fields  map[string]string // of the event: of a death cause, code, signal, by, last readings, samples, log
	Turns   []*Held           // that it cut
	Next    string            // what followed for the worker, empty if that is not known yet
	Until   time.Time         // of what lasted a while (an outage, a worker that was gone): when it was over; zero for what has no end
	Lasts   bool              // it is not over
	Away    time.Duration     // of a start of the supervisor: how long none ran before it, 0 if that is not known
}

// Holds says whether the story cut a turn that a worker held.
func (s *Story) Holds(worker string) bool {
	return slices.ContainsFunc(s.Turns, func(h *Held) bool { return h.By == worker })
}

// Over says whether all of the story was before a time.
func (s *Story) Over(at time.Time) bool { return !s.Lasts && s.At.Before(at) && s.Until.Before(at) }

// ended says when a story was over that lasted a while.
func (s *Story) ended(at time.Time) { s.Until, s.Lasts = at, false }

// Held is a turn that was cut by a story, and what became of it.
type Held struct {
	Turn      string
	Platform  string    // of its chat; empty if that is not known
	Chat      string    // its number there
	By        string    // who held it
	Resumed   time.Time // zero: not yet
	ResumedBy string
	Ended     time.Time        // zero: not yet
	Outcome   string           // finished, parked, …
	Answer    *store.OutboxRow // to a chat, nil if there is none (yet); the caller of Tell knows it
	cut       time.Time
}

// KindLastWords is the kind of events that tell what workers said last that had lost their supervisor.
const KindLastWords = "last_words"

// KindDeath is the kind of stories about the end of a worker's process.
const KindDeath = "death"

// telling are the events that are a story of their own. Deaths, starts and stops have rules of their own.
var telling = []string{
	"leak_suspected", "recycle_due", "recycling", "child_ended", "over_limit", "memory_total",
	"worker_hung", "worker_degraded", "worker_recovered",
	"turn_parked", "turn_vanished", "call_unknown", "call_failed", "outbox_unknown", "outbox_rejected", "watchdog_stuck", KindEventsDropped,
	"machine_asleep", "log_flood", "peer_refused", "plugin_quarantined", KindSupervisorReady, KindLastWords,
}

// unwanting are the events after which nobody misses a worker any more.
var unwanting = []string{KindWorkerRemoved, "plugin_removed", "plugin_disabled"}

// Lasting are the kinds of events that begin or end what lasts. They are few, so that one can look far back for them.
func Lasting() []string {
	list := append([]string{
		KindSupervisorStarted, KindSupervisorReady, KindSupervisorStopping, "worker_exited", "worker_restarting", "worker_ready", "worker_disabled",
		"adapter_connected", "adapter_state",
	}, unwanting...)
	return slices.AppendSeq(list, maps.Keys(outageKinds))
}

// closely is how far apart the broken connection of a process and its death may be noticed.
const closely = 3 * time.Second

// A teller makes stories of events in their order.
type teller struct {
	stories []*Story
	leased  map[string]string // turn → worker that holds it
	chats   map[string]chat   // turn → whose it is
	lost    map[string]loss   // turn → its newest loss
	waiting map[string][]*Held
	next    map[string]*Story   // worker → its death, until something follows
	failing map[string]*failing // worker and what failed → the newest story of that
	outages map[string]*outage  // gateway → its newest
	running bool                // a supervisor runs and was not stopped
	heard   time.Time           // of the newest event
	stop    *Story              // of the supervisor, until its next start
	start   *Story              // of the supervisor, until it is ready
}

type chat struct{ platform, id string }

// A failing is a call that fails again and again, which is told once.
type failing struct {
	story *Story
	last  time.Time
	times int
}

// again is how soon the same failure of the same plugin is told with the one before it.
const again = time.Hour

type loss struct {
	worker string
	at     time.Time
}

// Tell makes stories of events, which must be in order.
func Tell(events []store.Event) []*Story {
	t := &teller{
		leased: map[string]string{}, chats: map[string]chat{}, lost: map[string]loss{}, waiting: map[string][]*Held{},
		next: map[string]*Story{}, failing: map[string]*failing{}, outages: map[string]*outage{},
	}
	for _, e := range events {
		t.take(e)
		t.heard, t.running = e.Time, t.stop == nil
	}
	t.lasts()
	return t.stories
}

func (t *teller) take(e store.Event) {
	switch {
	case e.Kind == "worker_exited":
		t.gone(e.Worker, e.Time)
		t.died(e)
	case e.Kind == "worker_restarting", e.Kind == "worker_ready":
		t.followed(e)
	case strings.HasPrefix(e.Kind, "adapter_"):
		t.adapter(e)
		return
	case e.Kind == KindSupervisorStarted:
		for worker := range t.outages {
			t.gone(worker, e.Time)
		}
		t.started(e)
	case e.Kind == KindSupervisorReady && t.start != nil:
		t.start.Next = e.Message
		t.start.ended(e.Time)
		t.start = nil
		return
	case e.Kind == KindSupervisorStopping:
		t.stop = t.tell(e, e.Kind)
		t.stop.Lasts = true
	case strings.HasPrefix(e.Kind, "turn_"):
		t.turn(e)
	case e.Kind == "call_failed":
		t.failed(e)
		return
	case e.Kind == "worker_disabled":
		t.disabled(e)
	case slices.Contains(unwanting, e.Kind):
		t.unwanted(e)
	}
	if slices.Contains(telling, e.Kind) {
		t.tell(e, e.Kind)
	}
}

func (t *teller) tell(e store.Event, kind string) *Story {
	s := &Story{At: e.Time, Kind: kind, Worker: e.Worker, PID: e.PID, Message: e.Message, Fields: e.Fields}
	if e.TurnID != "" {
		s.Message = turnName(e.TurnID) + ": " + s.Message
	}
	t.stories = append(t.stories, s)
	return s
}

// turnName is what people read of a turn: its number says already what it is.
func turnName(id string) string {
	if strings.HasPrefix(id, "turn_") {
		return id
	}
	return "turn " + id
}

// failed tells of a call that failed, once for the same failure of the same tool.
func (t *teller) failed(e store.Event) {
	key := e.Worker + "\x00" + e.Fields["tool"] + "\x00" + e.Message
	f := t.failing[key]
	if f == nil || e.Time.Sub(f.last) > again {
		t.failing[key] = &failing{story: t.tell(e, e.Kind), last: e.Time, times: 1}
		return
	}
	f.last = e.Time
	f.times++
	fields := maps.Clone(f.story.Fields)
	fields["times"] = strconv.Itoa(f.times)
	f.story.Fields = fields
	f.story.Next = fmt.Sprintf("failed so %d times, the last after %s", f.times, short(e.Time.Sub(f.story.At)))
}

// died tells of a death. The ends that come with the end of the supervisor are part of that story.
func (t *teller) died(e store.Event) {
	if t.stop != nil && e.Fields["cause"] == "planned" {
		return
	}
	earlier := t.takeBack(e)
	s := t.tell(e, KindDeath)
	t.stories = append(t.stories, earlier...)
	t.gap(s)
	s.Lasts = e.Fields["cause"] != "planned" // else it is replaced in a moment, or its role is no longer wanted
	for turn, worker := range t.leased {
		if worker == e.Worker {
			t.hold(s, turn, worker)
			delete(t.leased, turn)
		}
	}
	for turn, l := range t.lost {
		if l.worker == e.Worker && e.Time.Sub(l.at) < closely {
			t.hold(s, turn, l.worker)
			delete(t.lost, turn)
		}
	}
	slices.SortFunc(s.Turns, func(a, b *Held) int { return strings.Compare(a.Turn, b.Turn) })
}

// takeBack removes what a death explains: that the worker hung, which the death says again, and calls whose outcome is unknown
// for that reason, which it returns.
func (t *teller) takeBack(death store.Event) (calls []*Story) {
	t.stories = slices.DeleteFunc(t.stories, func(s *Story) bool {
		switch {
		case s.Worker != death.Worker:
			return false
		case s.Kind == "worker_hung":
			return death.Fields["cause"] == "hung" && death.Time.Sub(s.At) < time.Minute
		case s.Kind == "call_unknown" && death.Time.Sub(s.At) < closely:
			calls = append(calls, s)
			return true
		}
		return false
	})
	return calls
}

// hold notes that a story cut a turn. What was lost a moment ago may have been taken up by now.
func (t *teller) hold(s *Story, turn, worker string) {
	for _, w := range t.waiting[turn] {
		if w.By == worker && s.Kind == KindDeath && s.At.Sub(w.cut) < closely {
			s.Turns = append(s.Turns, w)
			return
		}
	}
	h := t.held(turn, worker, s.At)
	s.Turns = append(s.Turns, h)
	t.waiting[turn] = append(t.waiting[turn], h)
}

func (t *teller) held(turn, worker string, cut time.Time) *Held {
	c := t.chats[turn]
	return &Held{Turn: turn, Platform: c.platform, Chat: c.id, By: worker, cut: cut}
}

// keptDown follows a stop by an operator.
const keptDown = "kept down"

// disabled tells of a stop by an operator, with the death that it was if there was one.
func (t *teller) disabled(e store.Event) {
	if s := t.next[e.Worker]; s != nil {
		s.Next = keptDown
		return
	}
	s := t.tell(e, e.Kind)
	s.Lasts = true
	t.gap(s)
}

// unwanted ends the time in which a worker is missed.
func (t *teller) unwanted(e store.Event) {
	t.switchedOff(e.Worker, e.Time)
	if gone := t.next[e.Worker]; gone != nil {
		gone.ended(e.Time)
		delete(t.next, e.Worker)
	}
}

// gap begins the time in which a worker is gone, and ends the one before it.
func (t *teller) gap(s *Story) {
	if before := t.next[s.Worker]; before != nil {
		before.ended(s.At)
	}
	t.next[s.Worker] = s
}

// followed notes what came after a death.
func (t *teller) followed(e store.Event) {
	s := t.next[e.Worker]
	if s == nil {
		return
	}
	switch delay := e.Fields["delay"]; {
	case e.Kind == "worker_ready":
		served := "served again after " + short(e.Time.Sub(s.At))
		if s.Next == keptDown {
			served = keptDown + ", " + served
		}
		s.Next = served
		s.ended(e.Time)
		delete(t.next, e.Worker)
	case delay != "" && delay != "0s":
		s.Next = "next start after " + delay + ": " + e.Message
	default:
		s.Next = "started again at once"
	}
}

// started tells of a start of the supervisor. One that was not stopped before was killed, or the machine went down.
func (t *teller) started(e store.Event) {
	s := t.tell(e, e.Kind)
	if heard := t.lastHeard(e); !heard.IsZero() {
		s.Away = e.Time.Sub(heard)
	}
	killed := t.running
	if killed {
		s.Message += "; the one before it was killed, or the machine went down"
		if s.Away >= time.Second {
			s.Message += "; last heard of " + short(s.Away) + " before"
		}
	}
	if t.stop != nil {
		t.stop.Next = "started again after " + short(e.Time.Sub(t.stop.At))
		t.stop.ended(e.Time)
	}
	if t.start != nil {
		t.start.Lasts = false // when it ended is not known
	}
	for _, gone := range t.next {
		gone.ended(e.Time)
	}
	for turn, worker := range t.leased {
		if killed {
			t.hold(s, turn, worker)
		}
		delete(t.leased, turn)
	}
	s.Lasts = true
	t.stop, t.start = nil, s
	clear(t.next)
}

// FieldLastHeard is when the supervisor before the one that starts was last heard of, as RFC 3339.
const FieldLastHeard = "last_heard"

// lastHeard is the last sign of the supervisor before: what it recorded, or what it left in its home.
func (t *teller) lastHeard(e store.Event) time.Time {
	if at, err := time.Parse(time.RFC3339, e.Fields[FieldLastHeard]); err == nil && at.After(t.heard) && at.Before(e.Time) {
		return at
	}
	return t.heard
}

// turn follows the turns.
func (t *teller) turn(e store.Event) {
	id := e.TurnID
	switch e.Kind {
	case "turn_leased":
		t.leased[id] = e.Worker
		if p := e.Fields["platform"]; p != "" {
			t.chats[id] = chat{p, e.Fields["chat"]}
		}
		for _, h := range t.waiting[id] {
			if h.Resumed.IsZero() {
				h.Resumed, h.ResumedBy = e.Time, e.Worker
			}
		}
	case "turn_requeued":
		if t.leased[id] != e.Worker {
			return // told with the death that was noticed first
		}
		delete(t.leased, id)
		t.lost[id] = loss{e.Worker, e.Time}
		t.waiting[id] = append(t.waiting[id], t.held(id, e.Worker, e.Time))
	case "turn_released":
		delete(t.leased, id)
		if t.stop != nil {
			t.hold(t.stop, id, e.Worker)
		}
	case "turn_finished", "turn_parked", "turn_interrupted", "turn_failed":
		delete(t.leased, id)
		for _, h := range t.waiting[id] {
			h.Ended, h.Outcome = e.Time, strings.TrimPrefix(e.Kind, "turn_")
			if o := e.Fields["outcome"]; o != "" {
				h.Outcome = o
			}
		}
		delete(t.waiting, id)
		delete(t.lost, id)
		delete(t.chats, id)
	}
}

// short rounds a duration to what a person reads. What was noticed the other way round took no time.
func short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Seen says what the person saw whose turn was cut at a time.
func (h *Held) Seen(cut time.Time) string {
	if h.Answer == nil {
		return h.course(cut)
	}
	return h.course(cut) + ", " + delivery(h.Answer, cut)
}

// delivery says what became of an answer to a chat.
func delivery(r *store.OutboxRow, cut time.Time) string {
	switch r.State {
	case store.OutboxSent:
		return "in " + r.Platform + " after " + short(r.SentAt.Sub(cut))
	case store.OutboxRejected:
		return r.Platform + " refused it: " + r.Detail
	case store.OutboxUnknown:
		return "it may be in " + r.Platform + " or not: " + r.Detail
	}
	if r.Detail != "" {
		return "not in " + r.Platform + " yet: " + r.Detail
	}
	return "not in " + r.Platform + " yet"
}

// course says what became of the turn.
func (h *Held) course(cut time.Time) string {
	switch {
	case h.Ended.IsZero() && h.Resumed.IsZero():
		return "it waits to be taken up"
	case h.Ended.IsZero():
		return "taken up by " + h.ResumedBy + " after " + short(h.Resumed.Sub(cut)) + ", not answered yet"
	case h.Resumed.IsZero():
		return "its end came after " + short(h.Ended.Sub(cut)) + ": " + h.Outcome
	case h.Outcome == "completed" || h.Outcome == "ok" || h.Outcome == "done":
		return "taken up by " + h.ResumedBy + " after " + short(h.Resumed.Sub(cut)) + ", answered after " + short(h.Ended.Sub(cut))
	}
	return "taken up by " + h.ResumedBy + " after " + short(h.Resumed.Sub(cut)) + ", ended after " + short(h.Ended.Sub(cut)) + ": " + h.Outcome
}
