// Command peers measures process supervisors side by side on this machine, in one run: how fast a killed worker is replaced,
// what an idle supervisor costs, what becomes of a worker that cannot live, and who is left behind by a death. All of them
// keep the same program alive (package worker beside), so what differs is theirs. A peer that is not installed is skipped.
//
//	go run ./bench/peers -bin bin [-kills 30] [-idle 30s] [-crash 1m] [-only runit,floor] [-steps latency,idle] [-json FILE]
//
// floor is the least that a go-plugin host does; hermes-supervisor cannot be faster than that.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/bench/peers/floor"
)

// A row is what was measured of one supervisor. Times are in milliseconds; a negative value was not measured.
type row struct {
	Name        string  `json:"name"`
	Skipped     string  `json:"skipped,omitempty"`
	FirstP50    float64 `json:"first_instruction_p50_ms"`
	FirstP99    float64 `json:"first_instruction_p99_ms"`
	ReadyP50    float64 `json:"serving_p50_ms"`
	ReadyP99    float64 `json:"serving_p99_ms"`
	PSS         float64 `json:"idle_pss_mib"`
	SparePSS    float64 `json:"spare_pss_mib"`
	CPU         float64 `json:"idle_cpu_percent"`
	Wakeups     float64 `json:"idle_wakeups_per_second"`
	CrashStarts int     `json:"crash_loop_starts"`
	Child       string  `json:"child_after_kill_of_worker"`
	Setsid      string  `json:"child_in_own_session_after_kill_of_worker"`
	Left        string  `json:"worker_after_kill_of_supervisor"`
}

type options struct {
	bin, only, steps, document string
	kills, workers             int
	idle, crash                time.Duration
}

func main() {
	if len(os.Args) > 3 && os.Args[1] == "floor" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		floor.Host(ctx, os.Args[2], os.Args[3], os.Args[4:])
		return
	}
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the binaries")
	flag.StringVar(&o.only, "only", "", "measure these `supervisors` alone, separated by commas")
	flag.StringVar(&o.steps, "steps", "", "take these `steps` alone, separated by commas: latency, idle, left, crash")
	flag.StringVar(&o.document, "json", "", "write the figures to this `file` as well")
	flag.IntVar(&o.kills, "kills", 30, "kills of a worker")
	flag.IntVar(&o.workers, "workers", 8, "workers side by side")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long idle cost is measured")
	flag.DurationVar(&o.crash, "crash", time.Minute, "how long a worker that ends at once is watched")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	tools, err := os.MkdirTemp("", "peers-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tools) }()
	program, err := buildWorker(bin, tools)
	if err != nil {
		return err
	}
	fmt.Printf("%d kills, %d workers idle for %v, crash loop of %v; times in ms, - is not there or was not measured\n", o.kills, o.workers, o.idle, o.crash)
	fmt.Printf(columns, "SUPERVISOR", "FIRST P50", "P99", "× FLOOR", "SERVING P50", "P99", "× FLOOR", "PSS MIB", "SPARE MIB", "CPU %", "WAKEUPS/S",
		"CRASH STARTS", "CHILD", "SETSID", "LEFT")
	var rows []row
	for _, p := range peers(bin, program) {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), p.name) {
			continue
		}
		r := row{Name: p.name, Skipped: p.missing}
		if p.missing == "" {
			if r, err = measure(p, o); err != nil {
				r.Skipped = err.Error()
			}
		}
		rows = append(rows, r)
		// All of them take a quarter of an hour: what is measured is shown and kept although the rest is interrupted.
		print(r, rows[0])
		if err := keep(rows, o.document); err != nil {
			return err
		}
	}
	return nil
}

// keep replaces the document, if one is wanted.
func keep(rows []row, document string) error {
	if document == "" {
		return nil
	}
	b, err := json.MarshalIndent(rows, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(document), 0o755)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(document, append(b, '\n'), 0o644)
}

// buildWorker builds the worker with the version of the supervisor, which takes no other.
func buildWorker(bin, to string) (string, error) {
	out, err := exec.Command(filepath.Join(bin, "hermes-supervisor"), "version").Output()
	if err != nil {
		return "", fmt.Errorf("version of the supervisor: %w", err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 2 {
		return "", fmt.Errorf("version of the supervisor: %q", out)
	}
	const module = "github.com/hermes-supervisor/hermes-supervisor"
	path := filepath.Join(to, "worker")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X "+module+"/ipc.version="+fields[1], "-o", path, module+"/bench/peers/worker")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the worker: %w\n%s", err, out)
	}
	return path, nil
}

// columns is a line of the table.
const columns = "%-34s %9s %6s %7s  %11s %6s %7s  %7s %9s  %6s %9s  %12s  %-9s %-9s %s\n"

// print shows a row, with its ratios to the first one if that is the floor.
func print(r, least row) {
	if r.Skipped != "" {
		fmt.Printf("%-34s %s\n", r.Name, r.Skipped)
		return
	}
	if least.Name != "floor" {
		least = row{FirstP50: -1, ReadyP50: -1}
	}
	text := func(v float64) string {
		if v <= 0 {
			return "-"
		}
		return fmt.Sprintf("%.3g", v)
	}
	fmt.Printf(columns, r.Name, text(r.FirstP50), text(r.FirstP99), text(r.FirstP50/least.FirstP50), text(r.ReadyP50), text(r.ReadyP99),
		text(r.ReadyP50/least.ReadyP50), text(r.PSS), text(r.SparePSS), fmt.Sprintf("%.3f", r.CPU), fmt.Sprintf("%.2f", r.Wakeups),
		fmt.Sprint(r.CrashStarts), r.Child, r.Setsid, r.Left)
}
