package control

import (
	"context"
	"maps"
	"slices"
	"strings"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/event"
)

// mostTold bounds the events of one timeline: a crash loop of hours, in some tens of MiB for a moment.
const mostTold = 20_000

// timelineService tells stories from the journal.
type timelineService struct {
	controlv1.UnimplementedTimelineServer
	journal Journal
	known   func(ctx context.Context, worker string) error // refuses the name of nobody
	answers func(ctx context.Context, turns []string) (map[string]store.OutboxRow, error)
}

// Tell reads the journal from a time on and tells what happened.
func (t *timelineService) Tell(ctx context.Context, r *controlv1.TellRequest) (*controlv1.TellResponse, error) {
	if err := t.known(ctx, r.Worker); err != nil {
		return nil, err
	}
	since := unixTime(r.Since)
	events, err := t.read(ctx, store.EventFilter{Since: since, Limit: mostTold})
	if err != nil {
		return nil, err
	}
	out := &controlv1.TellResponse{Cut: len(events) == mostTold}
	before, err := t.before(ctx, events)
	if err != nil {
		return nil, err
	}
	stories := slices.DeleteFunc(event.Tell(append(before, events...)), func(s *event.Story) bool {
		return s.Over(since) || r.Worker != "" && s.Worker != r.Worker && !s.Holds(r.Worker)
	})
	t.addAnswers(ctx, stories)
	for _, s := range stories {
		out.Stories = append(out.Stories, storyMessage(s))
	}
	return out, nil
}

// leadIn is how many events before the time that is told of are read with it: who held the turns that were cut, that a
// supervisor ran that was killed, and what went on then. They are the events of about a thousand turns, in a MiB or two for a moment.
// As many that begin or end what lasts are read from before these.
const leadIn = 4000

// before returns the events that lead to those of a time; if there are none, the newest lead there.
func (t *timelineService) before(ctx context.Context, events []store.Event) ([]store.Event, error) {
	near := store.EventFilter{Limit: leadIn}
	if len(events) > 0 {
		near.BeforeID = events[0].ID
	}
	list, err := t.read(ctx, near)
	if err != nil || len(list) < leadIn {
		return list, err
	}
	far, err := t.read(ctx, store.EventFilter{BeforeID: list[0].ID, Kinds: event.Lasting(), Limit: leadIn})
	return append(far, list...), err
}

func (t *timelineService) read(ctx context.Context, f store.EventFilter) (events []store.Event, err error) {
	err = t.journal.Read(ctx, f, false, func(e store.Event) error {
		events = append(events, e)
		return nil
	})
	return events, err
}

// addAnswers adds to the turns that were cut what became of their answers. A store that cannot be read costs only that.
func (t *timelineService) addAnswers(ctx context.Context, stories []*event.Story) {
	held := map[string][]*event.Held{}
	for _, s := range stories {
		for _, h := range s.Turns {
			held[h.Turn] = append(held[h.Turn], h)
		}
	}
	if len(held) == 0 || t.answers == nil {
		return
	}
	rows, _ := t.answers(ctx, slices.Collect(maps.Keys(held)))
	for turn, row := range rows {
		for _, h := range held[turn] {
			h.Answer = &row
		}
	}
}

func storyMessage(s *event.Story) *controlv1.Story {
	out := &controlv1.Story{
		At: unixSeconds(s.At), Kind: s.Kind, Worker: s.Worker, Pid: int64(s.PID), Message: s.Message,
		Cause: s.Fields["cause"], Code: s.Fields["code"], Signal: s.Fields["signal"], By: s.Fields["by"], Uptime: s.Fields["uptime"],
		Samples: list(s.Fields["samples"], "; "), Log: list(s.Fields["log"], "\n"), Next: s.Next, AwaySeconds: s.Away.Seconds(), Fields: map[string]string{},
	}
	if out.Signal != "" {
		out.Code = ""
	}
	for k, v := range s.Fields {
		switch k {
		case "cause", "code", "signal", "by", "uptime", "samples", "log":
		default:
			out.Fields[k] = v
		}
	}
	for _, h := range s.Turns {
		m := &controlv1.HeldTurn{TurnId: h.Turn, HeldBy: h.By, ResumedBy: h.ResumedBy, Outcome: h.Outcome, Seen: h.Seen(s.At), Platform: h.Platform, Chat: h.Chat}
		if !h.Resumed.IsZero() {
			m.ResumedAt = unixSeconds(h.Resumed)
		}
		if !h.Ended.IsZero() {
			m.EndedAt = unixSeconds(h.Ended)
		}
		if h.Answer != nil {
			m.Delivery = string(h.Answer.State)
			if !h.Answer.SentAt.IsZero() {
				m.DeliveredAt = unixSeconds(h.Answer.SentAt)
			}
		}
		out.Turns = append(out.Turns, m)
	}
	return out
}

func list(s, separator string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, separator)
}
