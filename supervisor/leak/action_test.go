package leak

import (
	"strings"
	"testing"
	"time"
)

func TestAction(t *testing.T) {
	leak := func(left time.Duration) Verdict {
		return Verdict{Kind: Leak, Unit: "descriptors", Slope: 1, TimeToLimit: left}
	}
	kind := func(k Kind, left time.Duration) Verdict {
		return Verdict{Kind: k, Unit: "descriptors", TimeToLimit: left}
	}
	for name, c := range map[string]struct {
		v            Verdict
		value, limit int64
		want         Advice
		why          string
	}{
		"flat and low":                        {kind(Flat, Never), 20, 1000, Keep, ""},
		"flat just below 80 %":                {kind(Flat, Never), 799, 1000, Keep, ""},
		"80 %, whatever it is":                {kind(Flat, Never), 800, 1000, RecycleAtBoundary, "80 % of its limit of 1000 descriptors"},
		"just below 95 %":                     {kind(Burst, Never), 949, 1000, RecycleAtBoundary, "95 %"},
		"95 %":                                {kind(Burst, Never), 950, 1000, RecycleNow, "95 %"},
		"above the limit":                     {kind(Learning, Never), 1200, 1000, RecycleNow, "120 %"},
		"a leak with hours to go":             {leak(5 * time.Hour), 300, 1000, Keep, ""},
		"a leak with half an hour to go":      {leak(30 * time.Minute), 300, 1000, Keep, ""},
		"a leak with less":                    {leak(30*time.Minute - time.Second), 300, 1000, RecycleAtBoundary, "leak: 29 min 59 s to its limit"},
		"a staircase with less":               {kind(Staircase, 20*time.Minute), 300, 1000, RecycleAtBoundary, "staircase: 20 min"},
		"growth that is only watched":         {kind(Learning, 20*time.Minute), 300, 1000, Keep, ""},
		"no limit":                            {leak(time.Minute), 1e9, 0, Keep, ""},
		"unlimited":                           {leak(time.Minute), 1e9, -1, Keep, ""},
		"two readings from the limit":         {Verdict{Kind: Learning, Unit: "descriptors", Pace: 50}, 210, 256, RecycleNow, "takes 50 descriptors a second"},
		"the same pace, but far below it":     {Verdict{Kind: Learning, Unit: "descriptors", Pace: 50}, 160, 256, Keep, ""},
		"the same height, at a slower pace":   {Verdict{Kind: Learning, Unit: "descriptors", Pace: 5}, 210, 256, RecycleAtBoundary, "82 %"},
		"a burst to 90 % in one reading":      {Verdict{Kind: Burst, Unit: "bytes", TimeToLimit: Never}, 90 * mib, 100 * mib, RecycleAtBoundary, "90 % of its limit of 100 MiB"},
		"a leak at 80 % with hours to go":     {leak(5 * time.Hour), 800, 1000, RecycleAtBoundary, "80 %"},
		"a leak at 95 % and seconds to go":    {leak(time.Second), 960, 1000, RecycleNow, "96 %"},
		"a plateau that stays high but below": {kind(Plateau, Never), 790, 1000, Keep, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := Action(c.v, c.value, c.limit)
			if got != c.want || !strings.Contains(why, c.why) || (got == Keep) != (why == "") {
				t.Errorf("%s (%s), want %s (%s)", got, why, c.want, c.why)
			}
		})
	}
}

// TestNoLeakReachesItsLimit asks as a caller does, every ten seconds and when it presses, and recycles a worker that is
// idle at the next reading and a busy one within a minute.
func TestNoLeakReachesItsLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		q      Quantity
		rate   float64
		base   float64
		limit  int64
		within time.Duration
	}{
		{"50 descriptors a second of 256", Descriptors, 50, 6, 256, time.Minute},
		{"50 descriptors a second of 1024", Descriptors, 50, 6, 1024, time.Minute},
		{"5 descriptors a second of 256", Descriptors, 5, 20, 256, 10 * time.Minute},
		{"12 descriptors a minute of 256", Descriptors, 0.2, 20, 256, time.Hour},
		{"2 descriptors a minute of 256", Descriptors, 2.0 / 60, 20, 256, 3 * time.Hour},
		{"2 GB an hour of 2 GiB", AnonymousBytes, 2e9 / 3600, 200 * mib, 2 * gib, 2 * time.Hour},
		{"20 MiB a second of 1 GiB", AnonymousBytes, 20 * mib, 100 * mib, gib, 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			for lead := range 12 { // the leak may begin at any second of the ten
				value, why := untilAction(c.q, c.limit, c.within+time.Duration(lead)*time.Second, func(sec int) float64 {
					return c.base + c.rate*float64(max(0, sec-lead))
				})
				if why == "" || value >= c.limit {
					t.Errorf("begun after %d s: %d of %d when it was recycled (%s)", lead, value, c.limit, why)
				}
				if lead == 0 {
					t.Logf("%s before the limit: %s", span(seconds(float64(c.limit-value)/c.rate)), why)
				}
			}
		})
	}
}

// untilAction returns the value at which the first action was taken, and why.
func untilAction(q Quantity, limit int64, length time.Duration, f func(sec int) float64) (int64, string) {
	d := NewDetector(q)
	var v Verdict
	var value int64
	for i := range int(length / time.Second) {
		value = int64(f(i))
		d.Add(Point{Time: noon.Add(time.Duration(i) * time.Second), Value: value, Idle: true})
		if i%10 == 0 || d.Pressing(limit) {
			v = d.Verdict(limit)
		}
		if a, why := Action(v, value, limit); a != Keep {
			return value, a.String() + ": " + why
		}
	}
	return value, ""
}

func TestPressing(t *testing.T) {
	for name, c := range map[string]struct {
		values []int64
		limit  int64
		want   bool
	}{
		"nothing yet":           {nil, 100, false},
		"low and still":         {[]int64{20, 20}, 100, false},
		"a small step":          {[]int64{20, 22}, 100, false},
		"a tenth of the room":   {[]int64{20, 28}, 100, true},
		"high":                  {[]int64{80}, 100, true},
		"falling":               {[]int64{70, 20}, 100, false},
		"no limit":              {[]int64{20, 1000}, 0, false},
		"unlimited descriptors": {[]int64{20, 1000}, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDetector(Descriptors)
			for _, p := range sparse(time.Second, c.values...) {
				d.Add(p)
			}
			if got := d.Pressing(c.limit); got != c.want {
				t.Errorf("%v", got)
			}
		})
	}
}
