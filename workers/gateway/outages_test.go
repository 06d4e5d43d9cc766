package gateway

import (
	"testing"
	"time"
)

// Each outage has one line with its cause and one with its end and how long it was.
func TestOutagesAreToldOnce(t *testing.T) {
	var o outages
	now := time.Unix(0, 0)
	for i, step := range []struct {
		after  time.Duration
		status Status
		want   string
	}{
		{0, Status{State: StateConnecting}, ""},
		{time.Second, Status{State: StateConnected}, "adapter_connected: connected"},
		{time.Second, Status{State: StateConnected}, ""},
		{time.Second, Status{State: StateDegraded, Detail: "connection refused"}, "adapter_degraded: degraded: connection refused"},
		{time.Second, Status{State: StateDegraded, Detail: "timeout"}, ""},
		{time.Minute, Status{State: StateDeaf}, "adapter_deaf: deaf: no cause given"},
		{4 * time.Minute, Status{State: StateConnected}, "adapter_connected: connected again after 5m2s"},
		{time.Hour, Status{State: StateConnected}, ""},
		{time.Second, Status{State: StateConflict, Detail: "rival"}, "adapter_conflict: conflict: rival"},
		{time.Second, Status{State: StateConnecting}, "adapter_connecting: connecting: no cause given"},
		{time.Second, Status{State: StateConnected}, "adapter_connected: connected again after 3s"},
	} {
		now = now.Add(step.after)
		kind, message, _ := o.see(step.status, now)
		got := ""
		if kind != "" {
			got = kind + ": " + message
		}
		if got != step.want {
			t.Errorf("step %d: see() = %q, want %q", i, got, step.want)
		}
	}
}

func TestAPlatformThatIsNotReachedFromTheStartIsTold(t *testing.T) {
	var o outages
	if kind, message, _ := o.see(Status{State: StateUnauthorised, Detail: "token refused"}, time.Unix(0, 0)); kind != "adapter_unauthorised" {
		t.Errorf("see() = %q, %q", kind, message)
	}
}
