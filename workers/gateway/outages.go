package gateway

import (
	"fmt"
	"time"
)

// outages turns samples of a status into events: one when a state begins, one when the platform is reached again.
// A platform that is reached at the first look is an event too; one that is still connecting is not.
type outages struct {
	last  ConnState
	since time.Time // when the platform was last seen to be reached, or first asked
}

func (o *outages) see(s Status, now time.Time) (kind, message string, fields map[string]string) {
	if o.since.IsZero() {
		o.since = now
	}
	if s.State == o.last {
		if s.State == StateConnected {
			o.since = now
		}
		return "", "", nil
	}
	first := o.last == ""
	o.last = s.State
	fields = map[string]string{"state": string(s.State), "detail": s.Detail}
	switch {
	case s.State == StateConnected && first:
		o.since = now
		return "adapter_connected", "connected", fields
	case s.State == StateConnected:
		down := now.Sub(o.since).Round(time.Second)
		o.since = now
		fields["down_seconds"] = fmt.Sprint(int(down.Seconds()))
		return "adapter_connected", "connected again after " + down.String(), fields
	case s.State == StateConnecting && first:
		return "", "", nil
	}
	detail := s.Detail
	if detail == "" {
		detail = "no cause given"
	}
	return "adapter_" + string(s.State), string(s.State) + ": " + detail, fields
}
