package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

func (p *program) ctlFds() *cobra.Command {
	summary, pict := false, &picture{}
	c := &cobra.Command{
		Use:   "fds NAME",
		Short: "Show the open descriptors of a worker and its descendants",
		Long: `Fds reads /proc, so it shows what is, not what the worker believes. The supervisor itself is named supervisor: it is
the only process that may show a database file.`,
		Example: `  hermes-supervisor ctl fds agent-1
  hermes-supervisor ctl fds supervisor | grep '\.db'
  hermes-supervisor ctl fds tools --summary
  hermes-supervisor ctl fds tools --plot --since 10m`,
		Args:              exactly(1, "the name of a worker, or supervisor"),
		ValidArgsFunction: p.completeProcesses,
		RunE: func(c *cobra.Command, args []string) error {
			if err := pict.check(p.output); err != nil {
				return err
			}
			if c.Flags().Changed("since") && !pict.wanted() {
				return usageError{errors.New("--since is for a picture (--plot or --svg); without one, fds shows what is open now")}
			}
			if pict.wanted() {
				return p.drawFds(c, pict, args[0])
			}
			return p.control(c.Context(), func(client controlv1.ControlClient) error {
				r, err := client.Fds(c.Context(), &controlv1.FdsRequest{Worker: args[0]})
				if err != nil {
					return fmt.Errorf("fds %s: %w", args[0], err)
				}
				switch {
				case !summary:
					return p.print(r, func(w io.Writer) error { return fdTable(w, r) })
				case p.output == outputJSON:
					return p.json(fdSummaryDoc{Worker: r.Worker, PID: r.Pid, Limit: r.Limit, Groups: fdGroups(r)})
				}
				return fdSummary(forPeople(p.out), fdGroups(r))
			})
		},
	}
	pict.flags(c)
	c.Flags().BoolVar(&summary, "summary", false, "count descriptors by target, most first")
	return p.withOutput(c)
}

// drawFds draws how the number of descriptors has changed.
func (p *program) drawFds(c *cobra.Command, f *picture, worker string) error {
	return p.connected(c.Context(), func(conn grpc.ClientConnInterface) error {
		h, err := p.past(c.Context(), conn, worker, f.since)
		if err != nil {
			return fmt.Errorf("fds %s: %w", worker, err)
		}
		return p.draw(f, h.fdChart())
	})
}

func fdTable(w io.Writer, r *controlv1.FdsResponse) error {
	fmt.Fprintf(w, "%s has %d of %d descriptors", printable(r.Worker), own(r), r.Limit)
	if err := fdProcesses(w, r); err != nil {
		return err
	}
	lines, names := make([][]string, len(r.Fds)), fdNames(r)
	for i, f := range r.Fds {
		lines[i] = []string{strconv.FormatInt(f.Pid, 10), names[f.Pid], strconv.Itoa(int(f.Fd)), f.Kind, f.Target}
	}
	return rows(w, "PID | PROCESS | FD | KIND | TARGET", lines)
}

// fdProcesses says which processes below the worker hold descriptors, the most first.
func fdProcesses(w io.Writer, r *controlv1.FdsResponse) error {
	if len(r.Processes) < 2 {
		_, err := fmt.Fprintln(w)
		return err
	}
	below := slices.Clone(r.Processes[1:])
	slices.SortStableFunc(below, func(a, b *controlv1.FdProcess) int { return cmp.Compare(b.Fds, a.Fds) })
	sum, lines := int64(0), make([][]string, len(below))
	for i, p := range below {
		sum += p.Fds
		note := ""
		if p.Detached {
			note = "in a session of its own"
		}
		lines[i] = []string{strconv.FormatInt(p.Pid, 10), p.Name, ratio(p.Fds, p.FdLimit), note}
	}
	fmt.Fprintf(w, ", and below it %s %d\n", wording.Count(len(below), "process has", "processes have"), sum)
	if err := rows(w, "PID | PROCESS | FDS | NOTE", lines); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// fdNames are the names of the processes by pid.
func fdNames(r *controlv1.FdsResponse) map[int64]string {
	names := map[int64]string{}
	for _, p := range r.Processes {
		names[p.Pid] = p.Name
	}
	return names
}

// own counts the descriptors of the worker itself; its descendants have limits of their own.
func own(r *controlv1.FdsResponse) int {
	n := 0
	for _, f := range r.Fds {
		if f.Pid == r.Pid || f.Pid == 0 {
			n++
		}
	}
	return n
}

// fdSummaryDoc is what `ctl fds NAME --summary -o json` prints.
type fdSummaryDoc struct {
	Worker string    `json:"worker"`
	PID    int64     `json:"pid"`
	Limit  int64     `json:"limit"`
	Groups []fdGroup `json:"groups"`
}

type fdGroup struct {
	Count   int    `json:"count"`
	PID     int64  `json:"pid"`
	Process string `json:"process"`
	Kind    string `json:"kind"`
	Target  string `json:"target"`
}

// fdGroups counts what is open by process and target, most first, which shows at once what leaks, and in whose hands.
func fdGroups(r *controlv1.FdsResponse) []fdGroup {
	type key struct {
		pid          int64
		kind, target string
	}
	count, names := map[key]int{}, fdNames(r)
	for _, f := range r.Fds {
		target := f.Target
		if f.Kind == "socket" || f.Kind == "pipe" {
			target = f.Kind // each has an inode number of its own
		}
		count[key{f.Pid, f.Kind, target}]++
	}
	groups := make([]fdGroup, 0, len(count))
	for k, n := range count {
		groups = append(groups, fdGroup{Count: n, PID: k.pid, Process: names[k.pid], Kind: k.kind, Target: k.target})
	}
	slices.SortFunc(groups, func(a, b fdGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Target, b.Target), cmp.Compare(a.PID, b.PID))
	})
	return groups
}

func fdSummary(w io.Writer, groups []fdGroup) error {
	lines := make([][]string, len(groups))
	for i, g := range groups {
		lines[i] = []string{strconv.Itoa(g.Count), strconv.FormatInt(g.PID, 10), g.Process, g.Kind, g.Target}
	}
	return rows(w, "COUNT | PID | PROCESS | KIND | TARGET", lines)
}
