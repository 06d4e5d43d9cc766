package event

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// An outage is a time in which a chat platform was not reached, or its gateway said nothing: a silence that no death explains.
type outage struct {
	story *Story
	begun time.Time // also of what it was before, degraded before it was deaf, say
	last  time.Time // when it began last
	times int       // that it began, each within again of the one before
	end   string    // how it ended last, empty while it lasts
}

// outageKinds begin one.
var outageKinds = map[string]bool{
	"adapter_connecting": true, "adapter_degraded": true, "adapter_conflict": true, "adapter_unauthorised": true, "adapter_deaf": true,
}

// adapter tells outages. That a platform is reached at the start of its gateway is none.
func (t *teller) adapter(e store.Event) {
	state := e.Fields["state"]
	switch {
	case outageKinds[e.Kind], e.Kind == "adapter_state" && state == "down":
		t.unreached(e, state)
	case e.Kind == "adapter_connected":
		t.reached(e, "connected again after ")
	case e.Kind == "adapter_state":
		t.reached(e, "answers again after ")
	}
}

// unreached begins an outage, or goes on with one that was told.
func (t *teller) unreached(e store.Event, state string) {
	o := t.outages[e.Worker]
	begun := e.Time
	switch {
	case o == nil || e.Time.Sub(o.last) > again:
	case o.story.Kind == e.Kind && o.end != "":
		o.begun, o.last, o.end = e.Time, e.Time, ""
		o.times++
		return
	case o.story.Kind == e.Kind:
		return
	case o.end == "":
		o.end, begun = "then "+state, o.begun
		o.follow(e.Time)
	}
	s := t.tell(e, e.Kind)
	s.Until = e.Time
	s.Message = strings.Replace(s.Message, ": "+state+": ", ": ", 1) // the kind says it
	t.outages[e.Worker] = &outage{story: s, begun: begun, last: e.Time, times: 1}
}

func (t *teller) reached(e store.Event, how string) {
	if o := t.outages[e.Worker]; o != nil && o.end == "" {
		lasted := e.Time.Sub(o.begun)
		if seconds, err := strconv.Atoi(e.Fields["down_seconds"]); err == nil {
			lasted = time.Duration(seconds) * time.Second // the gateway knows when it was reached last
		}
		o.end = how + short(lasted)
		o.follow(e.Time)
	}
}

// lasts says of outages without an end that they have none.
func (t *teller) lasts() {
	for _, o := range t.outages {
		if o.end == "" {
			o.end = "not over yet"
			o.follow(t.heard)
			o.story.Lasts = true
		}
	}
}

// goneWithGateway is how an outage ended with the process of its gateway.
const goneWithGateway = "until its gateway ended"

// gone ends the outage of a gateway with its process; what comes after is told by the next one.
func (t *teller) gone(worker string, at time.Time) {
	if o := t.outages[worker]; o != nil && o.end == "" {
		o.end = goneWithGateway
		o.follow(at)
	}
}

// switchedOff ends the outage of a gateway that is no longer wanted, with its process or after it.
func (t *teller) switchedOff(worker string, at time.Time) {
	if o := t.outages[worker]; o != nil && (o.end == "" || o.end == goneWithGateway && at.Sub(o.story.Until) < closely) {
		o.end = "until its adapter was switched off"
		o.follow(at)
	}
}

// follow writes what followed into the story.
func (o *outage) follow(at time.Time) {
	o.story.Next, o.story.Until = o.end, at
	if o.times > 1 {
		o.story.Next = fmt.Sprintf("%s, %d times so, the last after %s", o.end, o.times, short(o.last.Sub(o.story.At)))
	}
}
