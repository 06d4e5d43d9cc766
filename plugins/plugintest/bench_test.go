package plugintest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// BenchmarkFirstResult measures from the start of a plugin to its first result.
func BenchmarkFirstResult(b *testing.B) {
	path, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		p := Start(b, path, Options{})
		if o := p.Call(context.Background(), "works", ""); o.Content != "fine" {
			b.Fatalf("%+v", o)
		}
		b.StopTimer()
		p.tidy()
		b.StartTimer()
	}
}

// BenchmarkRoundTrip measures a call of a running plugin, and says what its process takes when idle.
func BenchmarkRoundTrip(b *testing.B) {
	path, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := Start(b, path, Options{})
	b.ResetTimer()
	for range b.N {
		if o := p.Call(context.Background(), "works", ""); o.Content != "fine" {
			b.Fatalf("%+v", o)
		}
	}
	b.StopTimer()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		for field, unit := range map[string]string{"VmRSS:": "RSS-KiB", "RssAnon:": "anonymous-KiB"} {
			if rest, ok := strings.CutPrefix(line, field); ok {
				var n float64
				if _, err := fmt.Sscan(rest, &n); err == nil {
					b.ReportMetric(n, unit)
				}
			}
		}
	}
}
