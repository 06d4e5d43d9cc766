package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

func (p *program) ctlStatus() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:   "status",
		Short: "Show the supervisor, its workers, turns and stores",
		Example: `  hermes-supervisor ctl status
  hermes-supervisor ctl status -o json | jq '.workers[] | select(.state != "ready")'`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.status(c, func(r *controlv1.StatusResponse) error {
				return p.print(r, func(w io.Writer) error { return p.statusTable(w, r) })
			})
		},
	})
}

func (p *program) ctlWorkers() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:        "workers",
		SuggestFor: []string{"ps", "list", "ls"},
		Short:      "Show the workers in detail",
		Example: `  hermes-supervisor ctl workers
  hermes-supervisor ctl workers -o json`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.status(c, func(r *controlv1.StatusResponse) error {
				only := &controlv1.StatusResponse{Workers: r.Workers}
				if p.output == outputJSON {
					return p.printWorkers(only.Workers)
				}
				return p.workerDetails(forPeople(p.out), only.Workers)
			})
		},
	})
}

func (p *program) status(c *cobra.Command, show func(*controlv1.StatusResponse) error) error {
	return p.control(c.Context(), func(client controlv1.ControlClient) error {
		r, err := client.Status(c.Context(), &controlv1.StatusRequest{})
		if err != nil {
			return fmt.Errorf("status: %w", err)
		}
		return show(r)
	})
}

// printWorkers writes {"workers": […]}.
func (p *program) printWorkers(list []*controlv1.WorkerStatus) error {
	docs := make([]string, len(list))
	for i, w := range list {
		docs[i] = string(document(w))
	}
	_, err := p.out.Write(indent([]byte(`{"workers":[` + strings.Join(docs, ",") + `]}`)))
	return err
}

func (p *program) statusTable(w io.Writer, r *controlv1.StatusResponse) error {
	s := r.GetSupervisor()
	fmt.Fprintf(w, "hermes-supervisor %s is %s, pid %d, up %s\n", printable(s.GetVersion()), p.stateText(s.GetState()), s.GetPid(), span(s.GetUptimeSeconds()))
	list := []string{
		"home", s.GetHome(),
		"memory", fmt.Sprintf("%s, %d of %d descriptors, %d goroutines", size(s.GetRssBytes()), s.GetFds(), s.GetFdLimit(), s.GetGoroutines()),
		"workers", memoryText(r.GetMemory()),
		"model", modelText(r.GetModel()),
		"turns", fmt.Sprintf("%d queued, %d running, %d parked", r.GetTurns().GetQueued(), r.GetTurns().GetRunning(), r.GetTurns().GetParked()),
		"outbox", fmt.Sprintf("%d pending, %d unknown", r.GetOutbox().GetPending(), r.GetOutbox().GetUnknown()),
		"stores", storesText(r.GetStores()),
	}
	if err := pairs(w, list...); err != nil {
		return err
	}
	for _, warning := range r.GetWarnings() {
		fmt.Fprintf(w, "%s %s\n", p.colour(yellow, "warning:"), printable(warning))
	}
	for _, store := range r.GetStores() {
		if store.Advice != "" {
			fmt.Fprintf(w, "%s store %s: %s\n", p.colour(yellow, "to do:"), printable(store.Name), printable(store.Advice))
		}
	}
	fmt.Fprintln(w)
	if err := p.workerTable(w, r.GetWorkers()); err != nil || len(r.GetAdapters()) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return adapterTable(w, r.GetAdapters())
}

// adapterTable shows how the chat platforms are reached.
func adapterTable(w io.Writer, adapters []*controlv1.AdapterStatus) error {
	lines := make([][]string, len(adapters))
	for i, a := range adapters {
		received := ""
		if a.LastReceive > 0 {
			received = moment(a.LastReceive).Format("2006-01-02 15:04:05")
		}
		lines[i] = []string{a.Platform, a.State, received, oneLine(a.Detail, maxNote)}
	}
	return rows(w, "ADAPTER | STATE | LAST RECEIVED | NOTE", lines)
}

// memoryText says what all workers hold together.
func memoryText(m *controlv1.WorkersMemory) string {
	if m.GetProcesses() == 0 {
		return "no process"
	}
	text := fmt.Sprintf("%s in %s", size(m.GetRssBytes()), wording.Count(m.GetProcesses(), "process", "processes"))
	if m.GetSpares() > 0 {
		text += fmt.Sprintf(", %s of it in %s", size(m.GetSpareRssBytes()), wording.Count(m.GetSpares(), "spare", "spares"))
	}
	if m.GetLimitBytes() > 0 {
		text += fmt.Sprintf("; %s of %s their own", dash(size(m.GetAnonBytes())), size(m.GetLimitBytes()))
	}
	return text
}

func modelText(m *controlv1.Model) string {
	text := m.GetProvider()
	if m.GetName() != "" && m.GetName() != m.GetProvider() {
		text += " " + m.GetName()
	}
	if m.GetReason() != "" {
		text += " (" + m.GetReason() + ")"
	}
	return text
}

func storesText(stores []*controlv1.StoreStatus) string {
	parts := make([]string, len(stores))
	for i, s := range stores {
		parts[i] = s.Name + " " + s.State
		if s.Detail != "" && s.State != "ok" {
			parts[i] += " (" + s.Detail + ")"
		}
		if s.Refused > 0 {
			parts[i] += fmt.Sprintf(", which gave up %s", wording.Count(s.Refused, "write", "writes"))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *program) workerTable(w io.Writer, workers []*controlv1.WorkerStatus) error {
	lines := make([][]string, len(workers))
	for i, s := range workers {
		lines[i] = []string{s.Name, s.State, pid(s.Pid), uptime(s), ratio(s.Fds, s.FdLimit), size(s.RssBytes),
			strconv.FormatInt(s.Restarts, 10), strconv.Itoa(int(s.InFlight)), note(s)}
	}
	return rows(w, "WORKER | STATE | PID | UP | FDS | MEMORY | RESTARTS | BUSY | NOTE", lines)
}

// maxNote is long enough for a failed start with what to do about it.
const maxNote = 300

// note is the one thing a person should know of a worker.
func note(s *controlv1.WorkerStatus) string {
	var parts []string
	if s.NextStartSeconds > 0 {
		parts = append(parts, fmt.Sprintf("starts in %.1fs", s.NextStartSeconds))
	}
	if s.Detail != "" {
		parts = append(parts, s.Detail)
	}
	for _, v := range []struct{ what, verdict string }{{"descriptors", s.GetVerdict().GetFds()}, {"memory", s.GetVerdict().GetRss()}} {
		if grows(v.verdict) {
			parts = append(parts, v.what+": "+v.verdict)
		}
	}
	if v := s.GetVerdict(); v.GetBelowDetail() != "" {
		parts = append(parts, fmt.Sprintf("descriptors below it: %s, %s", v.Below, v.BelowDetail))
	}
	if s.SparePid != 0 {
		parts = append(parts, "a spare of "+dash(size(s.SpareRssBytes))+" stands by")
	}
	if s.LastExit != nil && len(parts) == 0 {
		parts = append(parts, "last exit: "+exitText(s.LastExit))
	}
	if s.LogLinesDropped > 0 {
		parts = append(parts, fmt.Sprintf("%d log lines dropped", s.LogLinesDropped))
	}
	return oneLine(strings.Join(parts, "; "), maxNote)
}

// grows says whether a verdict is one that ends at the limit.
func grows(verdict string) bool { return verdict == "leak" || verdict == "staircase" }

func exitText(e *controlv1.ExitStatus) string {
	text := e.Cause
	switch {
	case e.Signal != "":
		text += ", " + e.Signal
	case e.Code != 0:
		text += fmt.Sprintf(", exit code %d", e.Code)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

func (p *program) workerDetails(w io.Writer, workers []*controlv1.WorkerStatus) error {
	for i, s := range workers {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (%s) is %s\n", printable(s.Name), s.Role, p.stateText(s.State))
		list := processDetails(s)
		list = append(list, "  restarts", strconv.FormatInt(s.Restarts, 10))
		if s.LastExit != nil {
			list = append(list, "  last exit", fmt.Sprintf("%s, pid %d, %s", moment(s.LastExit.At).Format("2006-01-02 15:04:05"), s.LastExit.Pid, exitText(s.LastExit)))
		}
		if text := note(s); text != "" {
			list = append(list, "  note", text)
		}
		if err := pairs(w, list...); err != nil {
			return err
		}
	}
	return nil
}

// processDetails tells of a worker's process, if it has one.
func processDetails(s *controlv1.WorkerStatus) []string {
	if s.Pid == 0 {
		return nil
	}
	list := []string{
		"  pid", fmt.Sprintf("%d, up %s", s.Pid, span(s.UptimeSeconds)),
		"  descriptors", fmt.Sprintf("%d of %d, %s", s.Fds, s.FdLimit, dash(s.GetVerdict().GetFds())),
		"  memory", fmt.Sprintf("%s, %s of it its own, %s", dash(size(s.RssBytes)), dash(size(s.AnonBytes)), dash(s.GetVerdict().GetRss())),
		"  work", fmt.Sprintf("%d done, %d running, %.1f %% cpu, %s", s.Progress, s.InFlight, s.CpuPercent, wording.Count(s.Threads, "thread", "threads")),
	}
	if s.BelowProcesses > 0 {
		list = append(list, "  below", fmt.Sprintf("%s, %s, %s, %s", wording.Count(s.BelowProcesses, "process", "processes"),
			dash(size(s.BelowRssBytes)), wording.Count(s.BelowFds, "descriptor", "descriptors"), dash(s.GetVerdict().GetBelow())))
	}
	if s.SparePid != 0 {
		list = append(list, "  spare", fmt.Sprintf("pid %d, %s", s.SparePid, dash(size(s.SpareRssBytes))))
	}
	return list
}

// stateText colours a state.
func (p *program) stateText(state string) string {
	codes := map[string]string{"ready": green, "failed": red, "degraded": yellow, "waiting": yellow, "disabled": dim, "draining": yellow, "stopping": yellow}
	return p.colour(codes[state], printable(state))
}

// uptime is empty for a worker without a process.
func uptime(s *controlv1.WorkerStatus) string {
	if s.Pid == 0 {
		return ""
	}
	return span(s.UptimeSeconds)
}

func pid(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func ratio(n, limit int64) string {
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", n, limit)
}
