package sample

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// crewEnv makes the test binary one of the workers that a benchmark watches, with so many processes below it.
	crewEnv = "SAMPLE_BENCH_CHILDREN"
	// workingEnv makes it wake up ten times a second.
	workingEnv = "SAMPLE_BENCH_WORKING"
)

func TestMain(m *testing.M) {
	if below, err := strconv.Atoi(os.Getenv(crewEnv)); err == nil {
		work(below)
	}
	goleak.VerifyTestMain(m)
}

// work holds twenty descriptors and as many processes as it is told, until its standard input ends with who watches it.
func work(below int) {
	for range 20 {
		if _, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0); err != nil {
			os.Exit(1)
		}
	}
	for range below {
		if err := crew(0, os.Getenv(workingEnv) != "", os.Stdin).Start(); err != nil {
			os.Exit(1)
		}
	}
	if os.Getenv(workingEnv) != "" {
		go func() {
			for {
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// crew is a worker that lives until stdin ends.
func crew(below int, working bool, stdin *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{crewEnv + "=" + strconv.Itoa(below)}
	if working {
		cmd.Env = append(cmd.Env, workingEnv+"=1")
	}
	cmd.Stdin = stdin
	return cmd
}

// The price of the rounds that are made once a second, for ten workers. The aim is 0.2 % of a core.
func BenchmarkRoundsOfTenWorkers(b *testing.B) {
	for _, c := range []struct {
		name    string
		below   int
		working bool
	}{
		{"asleep, three processes below each", 3, false},
		{"all of them working", 0, true},
		{"all of them working, three working processes below each", 3, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			alive, end, err := os.Pipe()
			if err != nil {
				b.Fatal(err)
			}
			s := NewSampler(System, 0)
			for range 10 {
				cmd := crew(c.below, c.working, alive)
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = cmd.Wait() })
				if _, err := s.Watch(cmd.Process.Pid); err != nil {
					b.Fatal(err)
				}
			}
			b.Cleanup(func() { _, _ = alive.Close(), end.Close() })
			time.Sleep(2 * time.Second) // until all of them have what they hold
			b.ReportAllocs()
			var spent time.Duration
			for b.Loop() {
				time.Sleep(150 * time.Millisecond) // each of those that work has worked since
				began := benchTime(b)
				s.tick(time.Now())
				spent += benchTime(b) - began
			}
			round := spent.Seconds() / float64(b.N)
			b.ReportMetric(round*1e6, "cpu-µs/round")
			b.ReportMetric(100*round, "%-of-a-core")
			b.ReportMetric(100*round/0.2, "×-the-aim")
		})
	}
}

// benchTime is what counts on a machine that others use too.
func benchTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkTable(b *testing.B) {
	n := 0
	began := benchTime(b)
	for b.Loop() {
		t, err := System.Table()
		if err != nil {
			b.Fatal(err)
		}
		n = len(t)
	}
	b.ReportMetric(float64((benchTime(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(n), "processes")
}
