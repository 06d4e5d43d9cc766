package turn

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// What the hub and the store add to a turn, beside the provider's and the tool's own time: from Accept to the final
// event, in real time and with every commit on disk. ns/op is the time between two turns of that many sessions.
func BenchmarkTurn(b *testing.B) {
	for _, c := range []struct{ calls, sessions int }{{0, 1}, {1, 1}, {0, 16}} {
		b.Run(fmt.Sprintf("calls=%d/sessions=%d", c.calls, c.sessions), func(b *testing.B) {
			r := &rig{t: b, path: filepath.Join(b.TempDir(), "state.db")}
			r.open()
			defer r.close()
			r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("done")}})
			r.agent("agent-1", quick(c.calls))
			r.final(r.accept("first", "m", "warm up").TurnID)
			b.ReportAllocs()
			b.ResetTimer()
			began := time.Now()
			work := make(chan int)
			done := make(chan struct{})
			for s := range c.sessions {
				go func() {
					defer func() { done <- struct{}{} }()
					for i := range work {
						r.final(r.accept(fmt.Sprint("chat ", s, ".", i), "m", "hello").TurnID) // a short conversation each
					}
				}()
			}
			for i := range b.N {
				work <- i
			}
			close(work)
			for range c.sessions {
				<-done
			}
			b.ReportMetric(float64(time.Since(began).Microseconds())*float64(min(c.sessions, b.N))/float64(b.N), "µs/turn")
		})
	}
}

// quick is an agent without a provider.
func quick(calls int) func(*agentRun) error {
	return func(a *agentRun) error {
		if _, _, err := a.load(); err != nil {
			return err
		}
		seq := uint32(1)
		for i := range calls {
			if _, err := a.step(seq, fmt.Sprint("c", i), "work", nil, never); err != nil {
				return err
			}
			seq += 2
		}
		return a.finish(seq, "hello")
	}
}
