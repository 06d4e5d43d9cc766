package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ownCgroup is the name of the cgroup that a supervisor goes into by itself: the kernel counts for the cgroups below one only if
// no process is in that one.
const ownCgroup = "supervisor"

// Enforced says which limits of workers the kernel holds, each in a cgroup of the worker's own, and why it does not hold the
// others. What it does not hold is watched.
type Enforced struct {
	Memory    bool
	Processes bool
	Why       string // empty if it holds both
}

// controllers of a cgroup that hold limits of workers.
var controllers = []string{"memory", "pids"}

// Delegate makes room for the cgroups of workers where the service manager, or a container, has handed this process a cgroup of
// its own. It is called before the first worker is started, and while this process has no children that are to stay.
func Delegate() Enforced {
	home := cgroupHome()
	if home == "" {
		return Enforced{Why: "this kernel has no cgroups of version 2, or none is mounted"}
	}
	return delegate(home, os.Getpid(), ours)
}

// delegate is Delegate for the cgroup at home; mine says why a cgroup is not this process's to divide, nil if it is.
func delegate(home string, pid int, mine func(home string) error) Enforced {
	offered := words(home, "cgroup.controllers")
	var want []string
	for _, c := range controllers {
		if slices.Contains(offered, c) {
			want = append(want, c)
		}
	}
	if len(want) == 0 {
		return Enforced{Why: fmt.Sprintf("its cgroup %s is handed neither memory nor pids to count: as a service it needs Delegate=memory pids, "+
			"and the machine needs them in version 2", home)}
	}
	if err := mine(home); err != nil {
		return Enforced{Why: err.Error()}
	}
	if err := divide(home, pid, want); err != nil {
		return Enforced{Why: err.Error()}
	}
	e := Enforced{Memory: slices.Contains(want, "memory"), Processes: slices.Contains(want, "pids")}
	switch {
	case !e.Memory:
		e.Why = "its cgroup is not handed memory to count"
	case !e.Processes:
		e.Why = "its cgroup is not handed pids to count"
	}
	return e
}

// ours says why a cgroup is not for this process to divide: it must be handed to it, by its owner or by the mark that a service
// manager sets, and nobody else may be in it.
func ours(home string) error {
	if err := unix.Access(filepath.Join(home, "cgroup.subtree_control"), unix.W_OK); err != nil {
		return fmt.Errorf("its cgroup %s belongs to somebody else: %w", home, err)
	}
	root := os.Geteuid() == 0 // who may write anywhere, so that it says nothing
	if root && !handedOver(home) && !namespaced() {
		return fmt.Errorf("its cgroup %s was not handed to it: as a service it needs Delegate=memory pids", home)
	}
	self := strconv.Itoa(os.Getpid())
	for _, pid := range words(home, "cgroup.procs") {
		if pid != self {
			return fmt.Errorf("other processes are in its cgroup %s (%s)", home, pid)
		}
	}
	return nil
}

// handedOver says whether a service manager says that it has handed a cgroup over.
func handedOver(home string) bool {
	var value [8]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(home, name, value[:]); err == nil && n > 0 && value[0] == '1' {
			return true
		}
	}
	return false
}

// namespaced says whether this process is at the root of a cgroup namespace, as in a container that was given one.
func namespaced() bool {
	own, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && strings.Contains("\n"+string(own), "\n0::/\n")
}

// divide moves this process into a cgroup of its own and has the kernel count for the ones beside it.
func divide(home string, pid int, want []string) error {
	leaf := filepath.Join(home, ownCgroup)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	if err := writeCgroup(leaf, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return err
	}
	if err := writeCgroup(home, "cgroup.subtree_control", "+"+strings.Join(want, " +")); err != nil {
		// Back to where it was, so that nothing has changed.
		return errors.Join(err, writeCgroup(home, "cgroup.procs", strconv.Itoa(pid)))
	}
	return nil
}

// words reads a file of a cgroup, nothing if it cannot be read.
func words(dir, file string) []string {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}
