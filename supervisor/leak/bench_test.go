package leak

import (
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// TestDetectorIsSmall holds the memory of a series: ten workers with four series each stay below 400 KiB.
func TestDetectorIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Detector{}); size > 10<<10 {
		t.Errorf("a detector takes %d bytes", size)
	}
	d := NewDetector(Descriptors)
	p := Point{Time: noon, Value: 20, Idle: true}
	if n := testing.AllocsPerRun(1000, func() {
		p.Time = p.Time.Add(time.Second)
		d.Add(p)
	}); n > 0 {
		t.Errorf("a point takes %v allocations", n)
	}
}

// processorTime is what this process has used, which says more than the wall clock on a machine that has other work.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

func BenchmarkAdd(b *testing.B) {
	d := NewDetector(Descriptors)
	p := Point{Time: noon, Value: 20, Idle: true}
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		p.Time = p.Time.Add(time.Second)
		d.Add(p)
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func BenchmarkVerdict(b *testing.B) {
	for name, f := range map[string]func(int) float64{
		"flat":     func(int) float64 { return 20 },
		"sawtooth": sawtooth(5000, 20, 300),
		"leak":     func(s int) float64 { return 20 + float64(s)/2000 },
	} {
		b.Run(name, func(b *testing.B) {
			d := NewDetector(Descriptors)
			for _, p := range dense(7*day, idle(f)) {
				d.Add(p)
			}
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				d.Verdict(1024)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
