package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// idleAgents make eight workers with tools, kanban and the API.
const idleAgents = 5

const (
	// memoryEvery is how often the memory of an idle supervisor is read. What it does when idle comes round every twenty
	// seconds, of which this is no part.
	memoryEvery = 7 * time.Second
	// readerEvery is the interval of the program that idle is compared with, as of the supervisor's own sampler.
	readerEvery = time.Second
)

// measureIdle measures memory of each process, and CPU time and wakeups over a while in which nothing happens. What a look at
// eight processes once a second costs depends on the machine more than on the program, so that a program that does nothing
// else is measured in the same while.
func measureIdle(r *report, h *home, p *provider, o options) error {
	if err := h.configureDefault(p.url(), idleAgents); err != nil {
		return err
	}
	if _, err := h.start(); err != nil {
		return err
	}
	names, pids, err := h.processes()
	if err != nil {
		return err
	}
	supervisor := pids[0]
	reader, err := startReader(pids[1:])
	if err != nil {
		return err
	}
	defer reader.stop()
	time.Sleep(15 * time.Second) // start-up garbage is collected, first samples and health checks are over
	measured := append(pids[:len(pids):len(pids)], reader.pid())
	before, wokenBefore, begun := cpu(measured), wakeupsOf(measured), time.Now()
	if err := r.addMemory(supervisor, o.idle); err != nil {
		return err
	}
	spent, woken, took := cpu(measured), wakeupsOf(measured), time.Since(begun).Seconds()
	for _, pid := range measured {
		spent[pid] -= before[pid]
		woken[pid] -= wokenBefore[pid]
	}
	if err := r.addMemoryOfTree(names, pids); err != nil {
		return err
	}
	percent := func(n int64) float64 { return float64(n) / 1e9 / took * 100 }
	all, most, wakeups := int64(0), 0.0, 0.0
	for _, pid := range pids {
		all += spent[pid]
		rate := float64(woken[pid]) / took
		if wakeups += rate; pid != supervisor {
			most = max(most, rate)
		}
	}
	r.add("idle CPU of the supervisor", "% of a core", percent(spent[supervisor]))
	r.add("idle CPU of a program that only reads the same workers", "% of a core", percent(spent[reader.pid()]))
	r.add("idle CPU of the supervisor against that program's", "times", float64(spent[supervisor])/float64(max(1, spent[reader.pid()])))
	r.add("idle CPU of the tree", "% of a core", percent(all))
	r.add("idle wakeups of the supervisor", "a second", float64(woken[supervisor])/took)
	r.add("idle wakeups of the worker with most", "a second", most)
	r.add("idle wakeups of the tree", "a second", wakeups)
	return nil
}

// addMemory reads the memory of the supervisor again and again for a while.
func (r *report) addMemory(supervisor int, lasting time.Duration) error {
	var pss, anon []float64
	for end := time.Now().Add(lasting); ; {
		m, err := readMemory(supervisor)
		if err != nil {
			return err
		}
		pss, anon = append(pss, m.pss), append(anon, m.anon)
		left := time.Until(end)
		if left <= 0 {
			break
		}
		time.Sleep(min(memoryEvery, left))
	}
	r.add("idle PSS of the supervisor meanwhile", "MiB", pss...)
	r.add("idle anonymous memory of the supervisor meanwhile", "MiB", anon...)
	return nil
}

func (r *report) addMemoryOfTree(names []string, pids []int) error {
	var tree memory
	for i, name := range names {
		m, err := readMemory(pids[i])
		if err != nil {
			return err
		}
		tree.rss, tree.pss, tree.anon = tree.rss+m.rss, tree.pss+m.pss, tree.anon+m.anon
		r.add("idle RSS of "+name, "MiB", m.rss)
		r.add("idle PSS of "+name, "MiB", m.pss)
		r.add("idle anonymous memory of "+name, "MiB", m.anon)
	}
	r.add("idle RSS of the tree", "MiB", tree.rss)
	r.add("idle PSS of the tree", "MiB", tree.pss)
	r.add("idle anonymous memory of the tree", "MiB", tree.anon)
	return nil
}

// cpu returns the nanoseconds that the threads of each process have run. The scheduler's own count is exact; ticks of 10 ms
// miss most of what lasts less.
func cpu(pids []int) map[int]int64 {
	spent := map[int]int64{}
	for _, pid := range pids {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, path := range threads {
			b, err := os.ReadFile(path)
			if err != nil {
				continue // the thread has ended
			}
			first, _, _ := strings.Cut(string(b), " ")
			n, _ := strconv.ParseInt(first, 10, 64)
			spent[pid] += n
		}
	}
	return spent
}

func wakeupsOf(pids []int) map[int]int64 {
	n := map[int]int64{}
	for _, pid := range pids {
		n[pid] = wakeups(pid)
	}
	return n
}

// wakeups counts how often the threads of a process went to sleep by themselves, which they do once for each time that they
// were woken.
func wakeups(pid int) (n int64) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range threads {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				v, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
				n += v
			}
		}
	}
	return n
}

// commandRead is this program as one that reads its arguments' processes once a second, and does nothing else.
const commandRead = "read-processes"

type reader struct{ cmd *exec.Cmd }

func startReader(pids []int) (*reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, commandRead)
	for _, pid := range pids {
		cmd.Args = append(cmd.Args, strconv.Itoa(pid))
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a program that only reads: %w", err)
	}
	return &reader{cmd}, nil
}

func (r *reader) pid() int { return r.cmd.Process.Pid }

func (r *reader) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// readProcesses reads state, memory and the number of descriptors of each process once a second, by the fewest system calls
// that a program needs which keeps nothing open. It ends when one of them has.
func readProcesses(pids []string) error {
	var buf [1024]byte
	for {
		time.Sleep(readerEvery)
		for _, pid := range pids {
			for _, name := range []string{"stat", "statm"} {
				fd, err := syscall.Open("/proc/"+pid+"/"+name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
				if errors.Is(err, syscall.EINTR) {
					continue
				}
				if err != nil {
					return fmt.Errorf("read process %s: %w", pid, err)
				}
				_, _ = syscall.Read(fd, buf[:])
				_ = syscall.Close(fd)
			}
			var st syscall.Stat_t
			_ = syscall.Stat("/proc/"+pid+"/fd", &st)
		}
	}
}
