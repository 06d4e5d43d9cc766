package leak

import (
	"math"
	"testing"
	"time"
)

// A source is a leak of a known speed, with the latest time at which it must be called one.
type source struct {
	name     string
	quantity Quantity
	limit    int64
	grow     func(sec, turns int) float64 // since it began
	within   time.Duration                // on an idle worker
	busy     time.Duration                // on one with the traffic of traffic_test.go; 0: not asked
	want     Kind                         // "": a leak or a staircase, which such traffic does not tell apart
}

func perSecond(r float64) func(int, int) float64 {
	return func(sec, _ int) float64 { return r * float64(sec) }
}

func perTurn(r float64) func(int, int) float64 {
	return func(_, turns int) float64 { return r * float64(turns) }
}

var sources = []source{
	{"50 a second of 256", Descriptors, 256, perSecond(50), 5 * time.Second, 0, Leak},
	{"50 a second", Descriptors, 1024, perSecond(50), 15 * time.Second, 30 * time.Second, Leak},
	{"50 a second of 65536", Descriptors, 65536, perSecond(50), 3 * time.Minute, 10 * time.Minute, Leak},
	{"1 a second", Descriptors, 1024, perSecond(1), 3 * time.Minute, 10 * time.Minute, Leak},
	{"12 a minute", Descriptors, 1024, perSecond(12.0 / 60), 5 * time.Minute, 30 * time.Minute, Leak},
	{"12 in ten minutes", Descriptors, 1024, perSecond(12.0 / 600), 30 * time.Minute, 6 * time.Hour, Leak},
	{"6 an hour", Descriptors, 1024, perSecond(6.0 / 3600), 6 * time.Hour, day, Leak},
	{"1 an hour", Descriptors, 1024, perSecond(1.0 / 3600), day, 3 * day, Leak},
	{"2 a day", Descriptors, 1024, perSecond(2.0 / 86400), 4 * day, 10 * day, Leak},
	{"2 a turn", Descriptors, 1024, perTurn(2), 0, 12 * time.Hour, Staircase},
	{"1 in 10 turns", Descriptors, 1024, perTurn(0.1), 0, 4 * day, ""},
	{"20 MiB a second", AnonymousBytes, 2 * gib, perSecond(20 * mib), 3 * time.Minute, 3 * time.Minute, Leak},
	{"1 MiB a second", AnonymousBytes, 2 * gib, perSecond(mib), 10 * time.Minute, 30 * time.Minute, Leak},
	{"2 GB an hour", AnonymousBytes, 2 * gib, perSecond(2e9 / 3600), 20 * time.Minute, time.Hour, Leak},
	{"100 MiB an hour", AnonymousBytes, 2 * gib, perSecond(100 * mib / 3600), 6 * time.Hour, 12 * time.Hour, Leak},
	{"10 MiB an hour", AnonymousBytes, 2 * gib, perSecond(10 * mib / 3600), 2 * day, 4 * day, Leak},
	{"1 MiB an hour", AnonymousBytes, 2 * gib, perSecond(mib / 3600.0), 7 * day, 0, Leak},
	{"1 MiB a turn", AnonymousBytes, 2 * gib, perTurn(mib), 0, 4 * day, ""},
}

// A discovery is when a leak was called one, and what was left.
type discovery struct {
	found  time.Duration // 0: never
	v      Verdict
	used   float64       // part of the room
	action time.Duration // 0: not seen
	reason string
	share  float64 // of the verdicts after the first that say the same
}

// tracker follows the verdicts on one leak.
type tracker struct {
	discovery
	limit, base int64
	after, same int
}

func (k *tracker) see(since time.Duration, v Verdict, value int64) {
	if v.Kind.Grows() && k.found == 0 {
		k.found, k.v = since, v
		k.used = float64(value-k.base) / float64(k.limit-k.base)
	}
	if k.found != 0 {
		k.after++
		if v.Kind.Grows() {
			k.same++
		}
	}
	if a, why := Action(v, value, k.limit); a != Keep && k.action == 0 && since > 0 {
		k.action, k.reason = since, a.String()+": "+why
	}
}

// cadence is how often verdicts are asked for: fast leaks are over in seconds.
func cadence(limit time.Duration) time.Duration {
	if limit < time.Hour {
		return time.Second
	}
	return time.Minute
}

// onIdle gives the leak to an idle worker after three flat hours.
func (c source) onIdle() discovery {
	lead, base := 3*3600, 20.0
	if c.quantity == AnonymousBytes {
		base = 150 * mib
	}
	k := tracker{limit: c.limit, base: int64(base)}
	d := NewDetector(c.quantity)
	every := int(cadence(c.within) / time.Second)
	for i := range lead + int(2*c.within/time.Second) {
		value := int64(base + c.grow(max(0, i-lead), 0))
		d.Add(Point{Time: noon.Add(time.Duration(i) * time.Second), Value: value, Idle: true})
		since := time.Duration(i-lead) * time.Second
		if i >= lead && i%every == 0 {
			k.see(since, d.Verdict(c.limit), value)
		}
		if value >= c.limit || k.found != 0 && since > 2*k.found {
			break
		}
	}
	k.share = float64(k.same) / float64(max(1, k.after))
	return k.discovery
}

// onTraffic gives the leak to a busy worker, from the second afternoon on.
func (c source) onTraffic(seed uint64) discovery {
	lead := 86400 + 14*3600
	w := newTraffic(seed)
	var turns int
	w.leak = func(sec, done int) (fds, bytes float64) {
		if sec < lead {
			turns = done
			return 0, 0
		}
		if c.quantity == Descriptors {
			return math.Floor(c.grow(sec-lead, done-turns)), 0
		}
		return 0, c.grow(sec-lead, done-turns)
	}
	var k tracker
	d := NewDetector(c.quantity)
	every := int(cadence(c.busy) / time.Second)
	for range lead + int(2*c.busy/time.Second) {
		fds, bytes, idle := w.next()
		value := int64(fds)
		if c.quantity == AnonymousBytes {
			value = int64(bytes)
		}
		d.Add(Point{Time: noon.Add(time.Duration(w.sec) * time.Second), Value: value, Idle: idle})
		since := time.Duration(w.sec-lead) * time.Second
		if since == 0 {
			k = tracker{limit: c.limit, base: value}
		}
		if since >= 0 && w.sec%every == 0 {
			k.see(since, d.Verdict(c.limit), value)
		}
		if value >= c.limit || k.found != 0 && since > 2*k.found {
			break
		}
	}
	k.share = float64(k.same) / float64(max(1, k.after))
	return k.discovery
}

func (k discovery) log(t *testing.T, where string) {
	t.Helper()
	action := "no action meanwhile"
	if k.action > 0 {
		action = "action after " + span(k.action) + " (" + k.reason + ")"
	}
	t.Logf("%s: found after %s with %.1f %% of the room used, as %s %.2f; said again %.0f %% of the time; %s\n\t%s",
		where, span(k.found), 100*k.used, k.v.Kind, k.v.Confidence, 100*k.share, action, k.v.Evidence)
}

// TestTimeToVerdict reports how long leaks of different speed go on before they are called leaks.
func TestTimeToVerdict(t *testing.T) {
	for _, c := range sources {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && max(c.within, c.busy) > 12*time.Hour {
				t.Skip("takes simulated days")
			}
			if c.within > 0 {
				k := c.onIdle()
				k.log(t, "idle worker")
				if k.found == 0 || k.found > c.within {
					t.Errorf("idle worker: found after %s, want at most %s", span(k.found), span(c.within))
				}
				if k.v.Kind != c.want {
					t.Errorf("idle worker: %s, want %s", k.v.Kind, c.want)
				}
			}
			if c.busy > 0 {
				k := c.onTraffic(*first)
				k.log(t, "busy worker")
				// A worker that is not idle before its limit has no verdict; it is recycled by its height.
				if k.found == 0 && k.action == 0 || k.found > c.busy {
					t.Errorf("busy worker: found after %s, want at most %s", span(k.found), span(c.busy))
				}
				if c.within == 0 && c.want != "" && k.found > 0 && k.v.Kind != c.want {
					t.Errorf("busy worker: %s, want %s", k.v.Kind, c.want)
				}
			}
		})
	}
}
