package gateway

import (
	"fmt"
	"time"
)

// outages turns samples of a status into events: one when a state begins, one when the platform is reached again.
// Connecting at the start is no outage.
type outages struct {
	last ConnState
	ok   time.Time // when the platform was last seen to be reached, or first asked
	told bool      // an outage is on the timeline and has not ended
}

func (o *outages) see(s Status, now time.Time) (kind, message string, fields map[string]string) {
	if o.ok.IsZero() {
		o.ok = now
	}
	before := o.last
	o.last = s.State
	fields = map[string]string{"state": string(s.State), "detail": s.Detail}
	if s.State == StateConnected {
		down := now.Sub(o.ok).Round(time.Second)
		o.ok = now
		switch {
		case before == StateConnected:
			return "", "", nil
		case !o.told:
			return "adapter_connected", "connected", fields
		}
		o.told = false
		fields["down_seconds"] = fmt.Sprint(int(down.Seconds()))
		return "adapter_connected", "connected again after " + down.String(), fields
	}
	if s.State == before || s.State == StateConnecting && before == "" {
		return "", "", nil
	}
	o.told = true
	detail := s.Detail
	if detail == "" {
		detail = "no cause given"
	}
	return "adapter_" + string(s.State), string(s.State) + ": " + detail, fields
}
