package turn

import (
	"testing"
	"time"
)

func TestLimitsHaveTheirDefaults(t *testing.T) {
	h := New(Config{})
	defer h.Close()
	if h.approvals().Timeout != defaultApprovalTimeout || h.limits.turns != defaultTurnsPerAgent {
		t.Errorf("limits %+v", h.limits)
	}
	h.Adjust(ApprovalPolicy{Manual: true, Timeout: time.Second}, 3, nil)
	if a := h.approvals(); !a.Manual || a.Timeout != time.Second || h.limits.turns != 3 {
		t.Errorf("limits %+v", h.limits)
	}
}
