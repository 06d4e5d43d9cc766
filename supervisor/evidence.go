package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

const (
	// evidenceFolder in the home holds what was saved of workers before they were replaced.
	evidenceFolder = "logs/recycled"
	// evidenceKept is how many replacements it keeps: at 100 KiB each, 2 MiB.
	evidenceKept = 20
	// topHandles is how many handle targets an event names.
	topHandles = 3
)

// An evidence keeps what a leaking worker held, a folder a replacement: handles.txt, heap.pprof and why.txt.
type evidence struct {
	dir string
	now func() time.Time
}

// save writes the evidence on a worker's process, as far as it is had before ctx ends. It returns the folder, and the
// targets of which the most handles are open.
func (e *evidence) save(ctx context.Context, m *member, pid int, why string) (folder, top string, err error) {
	folder = filepath.Join(e.dir, fmt.Sprintf("%s-%s-%d", e.now().UTC().Format("20060102T150405Z"), m.Name(), pid))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", "", fmt.Errorf("save evidence: %w", err)
	}
	e.prune()
	var faults []error
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			faults = append(faults, fmt.Errorf("save evidence: %w", err))
		}
	}
	write("why.txt", []byte(why+"\n"))
	handles, err := m.Fds()
	if err == nil {
		var text string
		text, top = describeHandles(handles)
		write("handles.txt", []byte(text))
	} else {
		faults = append(faults, err)
	}
	heap, err := m.Profile(ctx, &workerv1.ProfileRequest{Kind: workerv1.ProfileRequest_KIND_HEAP})
	switch {
	case err == nil:
		write("heap.pprof", heap.Data)
	case errors.Is(err, ipc.ErrNotServed): // plugins need not have profiles
	default:
		faults = append(faults, err)
	}
	return folder, top, errors.Join(faults...)
}

// describeHandles lists handles by target, the most frequent first, and names the first few.
func describeHandles(r *controlv1.FdsResponse) (text, top string) {
	type target struct {
		name string
		n    int
	}
	counts := map[string]int{}
	for _, fd := range r.Fds {
		name := fd.Target
		// Sockets and pipes have a number each; what they are is what counts.
		if fd.Kind == "socket" || fd.Kind == "pipe" {
			name = fd.Kind
		}
		counts[name]++
	}
	var targets []target
	for name, n := range counts {
		targets = append(targets, target{name, n})
	}
	slices.SortFunc(targets, func(a, b target) int { return cmp.Or(b.n-a.n, strings.Compare(a.name, b.name)) })
	var out strings.Builder
	fmt.Fprintf(&out, "%s of process %d and those below it; its own limit is %d\n", wording.Count(len(r.Fds), "handle", "handles"), r.Pid, r.Limit)
	for _, t := range targets {
		fmt.Fprintf(&out, "%6d  %s\n", t.n, t.name)
	}
	out.WriteString("\n   pid    fd  kind    target\n")
	for _, fd := range r.Fds {
		fmt.Fprintf(&out, "%6d %5d  %-6s  %s\n", fd.Pid, fd.Fd, fd.Kind, fd.Target)
	}
	var first []string
	for _, t := range targets[:min(topHandles, len(targets))] {
		first = append(first, fmt.Sprintf("%d× %s", t.n, t.name))
	}
	return out.String(), strings.Join(first, ", ")
}

// prune keeps the newest folders. Their names begin with the time.
func (e *evidence) prune() {
	entries, err := os.ReadDir(e.dir) // in order of name
	if err != nil {
		return
	}
	for _, old := range entries[:max(0, len(entries)-evidenceKept)] {
		_ = os.RemoveAll(filepath.Join(e.dir, old.Name())) // the next replacement tries again
	}
}

// endProcess kills exactly the process that was read, not one that has got its number since.
func endProcess(proc sample.Proc, s sample.Stat) error {
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return fmt.Errorf("end process %d: %w", s.PID, err)
	}
	defer unix.Close(fd)
	now, err := proc.Stat(s.PID)
	if err != nil {
		return err
	}
	if now.Start != s.Start {
		return fmt.Errorf("end process %d: %w", s.PID, sample.ErrGone)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return fmt.Errorf("end process %d: %w", s.PID, err)
	}
	return nil
}
