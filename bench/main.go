// Command bench measures the running system: how fast it starts, what it adds to a turn, how fast a killed worker is
// replaced, what it costs when nothing happens, what a tool plugin costs and what others notice of one that floods, how a
// rush of chat messages is answered, and how fast messages are stored.
// It prints a table, and with -json FILE writes the same as one document.
//
//	go run ./bench -bin bin [-only idle] [-idle 60s] [-turns 200] [-posts 5000] [-json FILE]
//
// Figures that compare with a peer or a limit are ratios of one run; absolute times are of this machine, now.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// A figure is one measured quantity: its quantiles where it was measured more than once.
type figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// A report is everything that one run measured.
type report struct {
	Go      string   `json:"go"`
	CPUs    int      `json:"cpus"`
	Figures []figure `json:"figures"`
}

func (r *report) add(name, unit string, values ...float64) {
	if len(values) == 0 {
		return
	}
	slices.Sort(values)
	at := func(q float64) float64 { return values[min(len(values)-1, int(q*float64(len(values))))] }
	r.Figures = append(r.Figures, figure{Name: name, Unit: unit, Count: len(values), P50: at(0.5), P99: at(0.99), Max: values[len(values)-1]})
}

type options struct {
	bin    string
	idle   time.Duration
	turns  int
	kills  int
	starts int
	posts  int
	slow   int
	rounds int
	only   string
}

func main() {
	if is, err := child(os.Args[1:]); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the binaries")
	flag.DurationVar(&o.idle, "idle", 60*time.Second, "how long idle CPU is measured")
	flag.IntVar(&o.turns, "turns", 200, "turns of each kind")
	flag.IntVar(&o.kills, "kills", 20, "kills of each worker")
	flag.IntVar(&o.starts, "starts", 5, "starts of the supervisor")
	flag.IntVar(&o.posts, "posts", 5000, "messages through Telegram, from 300 chats at once")
	flag.IntVar(&o.slow, "limited-posts", 1000, "messages through Telegram under its own limits, of 30 requests a second")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of 2 s of each way to write messages")
	flag.StringVar(&o.only, "only", "", "measure this `step` alone: starts, idle, turns, kills, plugins, telegram, \"telegram within limits\" or writes")
	document := flag.String("json", "", "write the figures to this `file` as well")
	flag.Parse()
	r, err := measure(o)
	if err == nil {
		err = r.print()
	}
	if err == nil && *document != "" {
		err = r.write(*document)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(o options) (*report, error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return nil, err
	}
	steps := []struct {
		name string
		run  func(*report, *home, *provider, options) error
	}{
		{"starts", measureStarts},
		{"idle", measureIdle},
		{"turns", measureTurns},
		{"kills", measureKills},
		{"plugins", measurePlugins},
		{"telegram", measureTelegram},
		{"telegram within limits", measureLimitedTelegram},
	}
	known := o.only == "" || o.only == "writes"
	for _, step := range steps {
		known = known || o.only == step.name
	}
	if !known { // nothing measured would look like a success
		return nil, fmt.Errorf("-only %q: there is no such step; see -help", o.only)
	}
	r := &report{Go: runtime.Version(), CPUs: runtime.NumCPU()}
	model, err := newProvider()
	if err != nil {
		return nil, err
	}
	defer model.close()
	for _, step := range steps {
		if o.only != "" && o.only != step.name {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s …\n", step.name)
		h, err := newHome(bin, model.url())
		if err != nil {
			return nil, err
		}
		err = step.run(r, h, model, o)
		h.remove()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if o.only == "" || o.only == "writes" {
		fmt.Fprintln(os.Stderr, "measuring writes …")
		if err := measureWrites(r, o); err != nil {
			return nil, fmt.Errorf("writes: %w", err)
		}
	}
	return r, nil
}

// write makes a JSON document of the report.
func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func (r *report) print() error {
	w := tabwriter.NewWriter(os.Stdout, 2, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %d CPUs\n", r.Go, r.CPUs)
	fmt.Fprintln(w, "FIGURE\tUNIT\tN\tP50\tP99\tMAX")
	for _, f := range r.Figures {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.3g\t%.3g\t%.3g\n", f.Name, f.Unit, f.Count, f.P50, f.P99, f.Max)
	}
	return w.Flush()
}
