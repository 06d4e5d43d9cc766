package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func (p *program) ctlMetrics() *cobra.Command {
	listen := ""
	c := &cobra.Command{
		Use:   "metrics",
		Short: "Print metrics for Prometheus, or serve them",
		Long: `Metrics prints what status shows in Prometheus' text format. With --listen this command serves it at /metrics until it
is stopped: the supervisor itself listens on no network. The address is unix:PATH, or a port of this machine.`,
		Example: `  hermes-supervisor ctl metrics
  hermes-supervisor ctl metrics --listen 127.0.0.1:9464
  hermes-supervisor ctl metrics --listen unix:/run/user/1000/hermes-metrics.sock`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if listen != "" {
				return p.serveMetrics(c.Context(), listen)
			}
			return p.status(c, func(r *controlv1.StatusResponse) error { return writeMetrics(p.out, r) })
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "serve at this `address`: unix:PATH or 127.0.0.1:PORT")
	return c
}

// Bounds of one scrape, so that a scraper that hangs holds nothing for long.
const (
	scrapeTimeout = 10 * time.Second
	maxHeader     = 16 << 10
)

func (p *program) serveMetrics(ctx context.Context, address string) error {
	l, err := metricsListener(address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", p.scrape)
	server := &http.Server{
		Handler: mux, ReadTimeout: scrapeTimeout, WriteTimeout: 2 * scrapeTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() { _ = server.Close(); close(stopped) })()
	p.progress("serving metrics at " + l.Addr().String())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	<-stopped
	return nil
}

// metricsListener listens for this machine only: metrics tell what runs here.
func metricsListener(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		l, err := net.Listen("unix", path)
		if err != nil {
			return nil, fmt.Errorf("serve metrics: %w", err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("serve metrics: %w", err)
		}
		return l, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usageError{fmt.Errorf("--listen %s: give unix:PATH or 127.0.0.1:PORT", address)}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usageError{fmt.Errorf("--listen %s: only addresses of this machine are served (127.0.0.1, ::1); put a proxy in front for others", address)}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	return l, nil
}

// scrape answers one request.
func (p *program) scrape(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
	defer cancel()
	var text bytes.Buffer
	err := p.control(ctx, func(client controlv1.ControlClient) error {
		status, err := client.Status(ctx, &controlv1.StatusRequest{})
		if err != nil {
			return err
		}
		return writeMetrics(&text, status)
	})
	if err != nil {
		code := http.StatusInternalServerError
		if errors.Is(err, ipc.ErrGone) || errors.Is(err, ipc.ErrTimeout) {
			code = http.StatusServiceUnavailable
		}
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text.Bytes())
}

// A metric is one family: a name, what it means, and a value for each set of labels.
type metric struct {
	name, kind, help string
	values           []labelled
}

type labelled struct {
	labels []string // name, value, name, value …
	value  float64
}

const (
	gauge   = "gauge"
	counter = "counter"
)

func one(name, kind, help string, v float64) metric {
	return metric{name, kind, help, []labelled{{nil, v}}}
}

// writeMetrics writes all families in a fixed order.
func writeMetrics(w io.Writer, r *controlv1.StatusResponse) error {
	var b bytes.Buffer
	for _, m := range append(supervisorMetrics(r), workerMetrics(r.GetWorkers())...) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for _, v := range m.values {
			b.WriteString(m.name)
			for i := 0; i+1 < len(v.labels); i += 2 {
				separator := ","
				if i == 0 {
					separator = "{"
				}
				fmt.Fprintf(&b, `%s%s="%s"`, separator, v.labels[i], labelValue.Replace(v.labels[i+1]))
			}
			if len(v.labels) > 0 {
				b.WriteByte('}')
			}
			b.WriteString(" " + strconv.FormatFloat(v.value, 'g', -1, 64) + "\n")
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

var labelValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func supervisorMetrics(r *controlv1.StatusResponse) []metric {
	s := r.GetSupervisor()
	stores := metric{name: "hermes_store_ok", kind: gauge, help: "Whether a database is as it should be."}
	for _, st := range r.GetStores() {
		stores.values = append(stores.values, labelled{[]string{"store", st.Name}, truth(st.State == "ok")})
	}
	return []metric{
		{"hermes_supervisor_info", gauge, "Version and state of the supervisor.", []labelled{{[]string{"version", s.GetVersion(), "state", s.GetState()}, 1}}},
		one("hermes_supervisor_ready", gauge, "Whether every required worker serves.", truth(s.GetState() == "ready")),
		one("hermes_supervisor_uptime_seconds", gauge, "Time since the supervisor was started.", s.GetUptimeSeconds()),
		one("hermes_supervisor_resident_memory_bytes", gauge, "Resident memory of the supervisor.", float64(s.GetRssBytes())),
		one("hermes_supervisor_open_fds", gauge, "Open descriptors of the supervisor.", float64(s.GetFds())),
		one("hermes_supervisor_max_fds", gauge, "Limit of open descriptors of the supervisor.", float64(s.GetFdLimit())),
		one("hermes_supervisor_goroutines", gauge, "Goroutines of the supervisor.", float64(s.GetGoroutines())),
		one("hermes_workers_resident_memory_bytes", gauge, "Resident memory of all workers, the processes below them and their spares.", float64(r.GetMemory().GetRssBytes())),
		one("hermes_workers_anonymous_memory_bytes", gauge, "The same, of memory that is their own.", float64(r.GetMemory().GetAnonBytes())),
		one("hermes_workers_memory_limit_bytes", gauge, "Memory of their own that all workers together may hold, 0 for any.", float64(r.GetMemory().GetLimitBytes())),
		{"hermes_turns", gauge, "Turns that are not done, by state.", []labelled{
			{[]string{"state", "queued"}, float64(r.GetTurns().GetQueued())},
			{[]string{"state", "running"}, float64(r.GetTurns().GetRunning())},
			{[]string{"state", "parked"}, float64(r.GetTurns().GetParked())},
		}},
		{"hermes_outbox_messages", gauge, "Replies that have not been delivered, by state.", []labelled{
			{[]string{"state", "pending"}, float64(r.GetOutbox().GetPending())},
			{[]string{"state", "unknown"}, float64(r.GetOutbox().GetUnknown())},
		}},
		stores,
	}
}

func workerMetrics(workers []*controlv1.WorkerStatus) []metric {
	each := func(name, kind, help string, value func(*controlv1.WorkerStatus) float64) metric {
		m := metric{name: name, kind: kind, help: help}
		for _, w := range workers {
			m.values = append(m.values, labelled{[]string{"worker", w.Name, "role", w.Role}, value(w)})
		}
		return m
	}
	leaks := metric{name: "hermes_worker_leak_suspected", kind: gauge, help: "Whether a worker's descriptors or memory, or the descriptors of a process below it, grow and are not given back."}
	for _, w := range workers {
		for _, v := range []struct{ resource, verdict string }{
			{"fds", w.GetVerdict().GetFds()}, {"memory", w.GetVerdict().GetRss()}, {"fds_below", w.GetVerdict().GetBelow()},
		} {
			leaks.values = append(leaks.values, labelled{[]string{"worker", w.Name, "role", w.Role, "resource", v.resource}, truth(grows(v.verdict))})
		}
	}
	return []metric{
		each("hermes_worker_ready", gauge, "Whether a worker serves.", func(w *controlv1.WorkerStatus) float64 { return truth(w.State == "ready") }),
		each("hermes_worker_restarts_total", counter, "Processes of a worker after its first one.", func(w *controlv1.WorkerStatus) float64 { return float64(w.Restarts) }),
		each("hermes_worker_uptime_seconds", gauge, "Time since the worker's process was started.", func(w *controlv1.WorkerStatus) float64 { return w.UptimeSeconds }),
		each("hermes_worker_resident_memory_bytes", gauge, "Resident memory of a worker.", func(w *controlv1.WorkerStatus) float64 { return float64(w.RssBytes) }),
		each("hermes_worker_anonymous_memory_bytes", gauge, "Memory of a worker that is its own.", func(w *controlv1.WorkerStatus) float64 { return float64(w.AnonBytes) }),
		each("hermes_worker_open_fds", gauge, "Open descriptors of a worker.", func(w *controlv1.WorkerStatus) float64 { return float64(w.Fds) }),
		each("hermes_worker_max_fds", gauge, "Limit of open descriptors of a worker.", func(w *controlv1.WorkerStatus) float64 { return float64(w.FdLimit) }),
		each("hermes_worker_threads", gauge, "Threads of a worker.", func(w *controlv1.WorkerStatus) float64 { return float64(w.Threads) }),
		each("hermes_worker_below_processes", gauge, "Processes below a worker.", func(w *controlv1.WorkerStatus) float64 { return float64(w.BelowProcesses) }),
		each("hermes_worker_below_open_fds", gauge, "Open descriptors of the processes below a worker.", func(w *controlv1.WorkerStatus) float64 { return float64(w.BelowFds) }),
		each("hermes_worker_below_resident_memory_bytes", gauge, "Resident memory of the processes below a worker.", func(w *controlv1.WorkerStatus) float64 { return float64(w.BelowRssBytes) }),
		each("hermes_worker_spare_ready", gauge, "Whether a process stands by to take over from a worker.", func(w *controlv1.WorkerStatus) float64 { return truth(w.SparePid != 0) }),
		each("hermes_worker_spare_resident_memory_bytes", gauge, "Resident memory of the process that stands by.", func(w *controlv1.WorkerStatus) float64 { return float64(w.SpareRssBytes) }),
		each("hermes_worker_in_flight", gauge, "Turns, calls or deliveries that a worker has in hand.", func(w *controlv1.WorkerStatus) float64 { return float64(w.InFlight) }),
		each("hermes_worker_log_lines_dropped_total", counter, "Log lines of a worker beyond its budget.", func(w *controlv1.WorkerStatus) float64 { return float64(w.LogLinesDropped) }),
		leaks,
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
