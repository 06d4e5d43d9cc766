package leak

import (
	"strings"
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0 s": 0, "59 s": 59 * time.Second, "1 min": time.Minute, "1 min 5 s": 65 * time.Second, "2 h": 2 * time.Hour,
		"12 h 45 min": 12*time.Hour + 45*time.Minute + 50*time.Second, "2 d 12 h": 60 * time.Hour,
	} {
		if got := span(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAmountAndRate(t *testing.T) {
	for want, got := range map[string]string{
		"1 descriptor":                  amount("descriptors", 1),
		"12 descriptors":                amount("descriptors", 12),
		"1.71 descriptors":              amount("descriptors", 1.714),
		"12345 descriptors":             amount("descriptors", 12345),
		"1.50 GiB":                      amount("bytes", 1.5*gib),
		"20 MiB":                        amount("bytes", 20*mib),
		"12.5 KiB":                      amount("bytes", 12.5*1024),
		"-3 MiB":                        amount("bytes", -3*mib),
		"512 B":                         amount("bytes", 512),
		"50 descriptors a second":       rate("descriptors", 50),
		"1.20 descriptors a minute":     rate("descriptors", 0.02),
		"6 descriptors an hour":         rate("descriptors", 6.0/3600),
		"2 descriptors a day":           rate("descriptors", 2.0/86400),
		"31.8 MiB a minute":             rate("bytes", 2e9/3600),
		"512 KiB a day":                 rate("bytes", mib/2/86400.0),
		"from 81 to 105 descriptors":    fromTo("descriptors", 81, 105),
		"from 1 GiB to 2 GiB":           fromTo("bytes", gib, 2*gib),
		"between 15 and 17 descriptors": between("descriptors", 15, 17),
		"15 descriptors":                between("descriptors", 15, 15),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestEvidence holds the sentences that a person reads.
func TestEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		points []Point
		want   []string
	}{
		"a leak says from, to, pace and the time left": {
			sparse(10*time.Minute, 81, 93, 105),
			[]string{"from 81 to 105 descriptors in 20 min (1.20 descriptors a minute), without any work", "its limit of 1024 descriptors comes in 12 h 45 min"},
		},
		"a leak beside work says so": {
			dense(2*time.Hour, func(s int) (float64, bool) { return 20 + float64(s)/100, s%1800 > 30 }),
			[]string{"also while it had no work"},
		},
		"a staircase says what each unit costs": {
			dense(6*time.Hour, withTurns(600, 20, func(turn int) float64 { return 20 + 8*float64(turn) })),
			[]string{"8 descriptors with each of 30 units of work, 0 descriptors in 3 h 45 min of quiet"},
		},
		"growth that is watched says when it is called a leak": {
			dense(10*time.Minute, idle(func(s int) float64 { return 20 + float64(s/30) })),
			[]string{"which is watched: growth of 201 descriptors is called a leak; at this rate"},
		},
		"a plateau says the step": {
			dense(2*time.Hour, idle(stepAt(78*60, 20, 145))),
			[]string{"rose by 145 descriptors within 1 min, from 20 to 165 descriptors, and has stayed there for 42 min"},
		},
		"a fresh step says that it is open": {
			dense(80*time.Minute, idle(stepAt(78*60, 20, 145))),
			[]string{"2 min ago; whether it stays is open"},
		},
		"a burst says that it came back": {
			dense(2*time.Hour, busyWindow(80*60, 110*60, 20, 60)),
			[]string{"rose from 20 to 80 descriptors", "and came back"},
		},
		"no idle reading at all": {
			dense(time.Hour, func(s int) (float64, bool) { return 20 + float64(s)/10, false }),
			[]string{"0 idle readings in 59 min 59 s are too few to judge"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(Descriptors, c.points, 1024)
			for _, w := range c.want {
				if !strings.Contains(v.Evidence, w) {
					t.Errorf("%s: %q lacks %q", v.Kind, v.Evidence, w)
				}
			}
		})
	}
}

func TestAdviceAndKindsHaveNames(t *testing.T) {
	if RecycleNow.String() != "recycle now" || Keep.String() != "keep" {
		t.Error("advice is misnamed")
	}
	for k, want := range map[Kind]bool{Leak: true, Staircase: true, Flat: false, Plateau: false, Burst: false, Learning: false} {
		if k.Grows() != want {
			t.Errorf("%s grows: %v", k, !want)
		}
	}
}
