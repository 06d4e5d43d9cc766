package leak

import (
	"fmt"
	"time"
)

// Advice is what is to be done about a worker.
type Advice int

// The advice, in order of urgency.
const (
	Keep              Advice = iota
	RecycleAtBoundary        // when no turn is in hand; ask again then, it may have receded
	RecycleNow
)

// String names the advice.
func (a Advice) String() string {
	return [...]string{"keep", "recycle at the next turn boundary", "recycle now"}[a]
}

const (
	// boundaryShare and nowShare are the parts of the limit at which a worker is replaced, whatever the verdict.
	boundaryShare = 0.80
	nowShare      = 0.95
	// horizon is the time to the limit at which a leak is no longer left alone. A turn may take the better part of it.
	horizon = 30 * time.Minute
	// lookAhead is how far the pace of the last seconds is trusted: two readings, as the limit may lie before the second.
	lookAhead = 2.0
)

// Action says what is to be done about a worker that holds value of limit, and why. A limit of 0 or less is none.
func Action(v Verdict, value, limit int64) (Advice, string) {
	if limit <= 0 {
		return Keep, ""
	}
	held, share := float64(value), float64(value)/float64(limit)
	percent := fmt.Sprintf("it holds %s, %.0f %% of its limit of %s", amount(v.Unit, held), 100*share, amount(v.Unit, float64(limit)))
	switch {
	case share >= nowShare:
		return RecycleNow, percent
	case share >= boundaryShare && held+lookAhead*v.Pace >= float64(limit):
		return RecycleNow, fmt.Sprintf("%s and takes %s", percent, rate(v.Unit, v.Pace))
	case share >= boundaryShare:
		return RecycleAtBoundary, percent
	case v.Kind.Grows() && v.TimeToLimit < horizon:
		return RecycleAtBoundary, fmt.Sprintf("%s: %s to its limit", v.Kind, span(v.TimeToLimit))
	}
	return Keep, ""
}

// pressing is how many times the newest growth may fit below the limit before a verdict cannot wait.
const pressing = 10

// Pressing says whether the newest points come so near the limit that a verdict should be asked for at once. It costs
// nothing; a caller that asks for verdicts now and then asks this after each point. A limit of 0 or less is none.
func (d *Detector) Pressing(limit int64) bool {
	if limit <= 0 || d.count == 0 {
		return false
	}
	held := d.value()
	if held >= boundaryShare*float64(limit) {
		return true
	}
	return d.count > 1 && held+pressing*(held-d.last[len(d.last)-2].value) >= float64(limit)
}
