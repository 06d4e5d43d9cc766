package leak

import (
	"fmt"
	"math"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// sayGrowth fills in a leak or a staircase.
func (d *Detector) sayGrowth(v *Verdict, f finding, limit int64) {
	v.Kind, v.Confidence = Leak, f.surety
	d.sayRise(v, f)
	d.forecast(v, f.slope, limit)
	if f.steps > 0 {
		v.Evidence += " in " + wording.Count(f.steps, "step", "steps")
	}
	v.Evidence += " (" + rate(v.Unit, f.slope) + ")"
	switch {
	case f.stairs:
		v.Kind = Staircase
		v.PerWork = f.grown() / float64(f.work)
		v.Evidence += fmt.Sprintf(": %s with each of %d units of work, %s in %s of quiet",
			amount(v.Unit, v.PerWork), f.work, amount(v.Unit, f.quietGrowth), span(seconds(f.quietTime)))
	case f.quiet && f.work > 0:
		v.Evidence += ", also while it had no work"
	case f.quiet:
		v.Evidence += ", without any work"
	}
	v.Evidence += d.sayLimit(v, limit)
}

// sayWatched fills in growth that is not enough for a verdict.
func (d *Detector) sayWatched(v *Verdict, f finding, limit int64) {
	v.Kind, v.Confidence = Learning, f.surety*min(1, f.grown()/f.need)
	d.sayRise(v, f)
	d.forecast(v, f.slope, limit)
	v.Evidence += fmt.Sprintf(" (%s), which is watched: growth of %s is called a leak%s",
		rate(v.Unit, f.slope), amount(v.Unit, f.need), d.sayLimit(v, limit))
}

func (d *Detector) sayRise(v *Verdict, f finding) {
	v.Span, v.From, v.To = seconds(f.time), int64(f.from), int64(f.to)
	v.Evidence = fmt.Sprintf("what it keeps when idle grew %s in %s", fromTo(v.Unit, f.from, f.to), span(v.Span))
}

func (d *Detector) sayLimit(v *Verdict, limit int64) string {
	if v.TimeToLimit == Never {
		return ""
	}
	return fmt.Sprintf("; at this rate its limit of %s comes in %s", amount(v.Unit, float64(limit)), span(v.TimeToLimit))
}

// saySettled fills in a verdict on what does not grow.
func (d *Detector) saySettled(v *Verdict) {
	kind, st := d.settled()
	peak, usual, ago := d.excursion()
	v.Kind, v.Span = kind, d.age
	switch {
	case kind == Plateau:
		v.Span, v.From, v.To = seconds(st.since), int64(st.from), int64(st.to)
		v.Confidence = st.since / (st.since + st.took + lasting.Seconds()/2)
		v.Evidence = fmt.Sprintf("rose by %s within %s, %s, and has stayed there for %s", amount(v.Unit, st.height),
			span(seconds(st.took)), fromTo(v.Unit, st.from, st.to), span(v.Span))
	case kind == Burst:
		v.Span, v.From, v.To = seconds(st.since), int64(st.from), int64(st.to)
		v.Confidence = 0.5
		v.Evidence = fmt.Sprintf("rose by %s within %s, %s, %s ago; whether it stays is open", amount(v.Unit, st.height),
			span(seconds(st.took)), fromTo(v.Unit, st.from, st.to), span(v.Span))
	case peak > 0:
		d.sayBurst(v, peak, usual, ago)
	default:
		low, high := d.range24()
		v.From, v.To = int64(low), int64(high)
		v.Confidence = d.age.Seconds() / (d.age.Seconds() + grace.Seconds())
		v.Evidence = fmt.Sprintf("%s when idle for %s, without a rise that stays",
			between(v.Unit, low, high), span(min(d.age, 24*time.Hour)))
	}
}

func (d *Detector) sayBurst(v *Verdict, peak, usual, ago float64) {
	p := &profiles[d.quantity]
	v.Kind, v.Span, v.From, v.To = Burst, seconds(ago), int64(usual), int64(peak)
	v.Confidence = (peak - usual) / (peak - usual + p.least)
	state := "and came back"
	if d.value() > (peak+usual)/2 {
		state = "and is still high"
	}
	v.Evidence = fmt.Sprintf("rose %s %s ago %s", fromTo(v.Unit, usual, peak), span(v.Span), state)
}

// range24 returns the least and the greatest idle floor of the last day, in minutes where they are kept.
func (d *Detector) range24() (low, high float64) {
	var s stretch
	low, high = math.Inf(1), 0
	for _, i := range []int{2, 3, 4} {
		s.load(&d.levels[i], binsKept)
		for _, f := range s.floor[:s.n] {
			low, high = min(low, f), max(high, f)
		}
	}
	return low, high
}
