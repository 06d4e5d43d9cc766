// Package sample reads what the kernel knows about processes: descriptors, memory, threads, processor time, parents.
//
// Rules: a reading is cheap enough to be made of every worker every second (a benchmark holds the price); nothing is
// opened that could change what is measured; a process that is gone is ErrGone and never an empty reading. All readers
// take the root of the proc file system, so that tests read trees of files.
package sample

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Proc is the root of a proc file system, or of a tree of files that looks like one.
type Proc string

// System is the proc file system of this machine.
const System Proc = "/proc"

// ErrGone says that the process has ended.
var ErrGone = errors.New("process is gone")

// Unlimited is an FDLimit that is none.
const Unlimited = -1

// ticksPerSecond is the unit of processor times in /proc/PID/stat. It has been 100 on every Linux that Go runs on;
// the kernel converts from its own.
const ticksPerSecond = 100

// A Stat is what /proc/PID/stat says, as far as it is needed here. It is all that a zombie still has.
type Stat struct {
	PID     int
	Comm    string // the command's name as the kernel cut it
	State   byte   // R running, S and D asleep, T stopped, Z zombie
	PPID    int
	PGRP    int
	Session int
	Threads int
	CPU     time.Duration // user and system time since the start
	Start   uint64        // clock ticks between boot and start: with PID the identity of a process
}

// Zombie says whether the process has ended and was not waited for.
func (s Stat) Zombie() bool { return s.State == 'Z' || s.State == 'X' }

// A Process is a full reading.
type Process struct {
	Stat
	FDs     int64 // open descriptors
	FDLimit int64 // the soft limit, Unlimited if there is none
	RSS     int64 // resident bytes
	Anon    int64 // of them anonymous: what cannot be dropped and read again
	Swap    int64 // anonymous bytes in swap
}

// Process reads everything about one process.
func (p Proc) Process(pid int) (Process, error) {
	r, err := p.use(pid)
	if err != nil {
		return Process{}, err
	}
	if r.FDLimit, err = p.FDLimit(pid); err != nil {
		return Process{}, err
	}
	return r, nil
}

// use reads what changes from second to second: everything but the limit.
func (p Proc) use(pid int) (Process, error) {
	stat, err := p.Stat(pid)
	if err != nil {
		return Process{}, err
	}
	r := Process{Stat: stat}
	if r.RSS, r.Anon, r.Swap, err = p.memory(pid); err != nil {
		return Process{}, err
	}
	if r.FDs, err = p.FDs(pid); err != nil {
		return Process{}, err
	}
	return r, nil
}

// useOf is use for a process whose stat was read already, without what is swapped: statm has the rest, and takes the kernel less
// time to write than status. It is for all that run below a worker, each second.
func (p Proc) useOf(s Stat) (Process, error) {
	data, release, err := p.read(s.PID, "statm")
	if err != nil {
		return Process{}, err
	}
	defer release()
	r := Process{Stat: s}
	r.RSS, r.Anon = parseStatm(data)
	r.FDs, err = p.FDs(s.PID)
	return r, err
}

// Stat reads /proc/PID/stat.
func (p Proc) Stat(pid int) (Stat, error) {
	data, release, err := p.read(pid, "stat")
	if err != nil {
		return Stat{}, err
	}
	defer release()
	return parseStat(data, "")
}

// ThreadStates returns the states of a process's threads, the first one's first: that one is a zombie when it has ended before
// the others, and stands for the process in Stat. It is empty for a process that is gone.
func (p Proc) ThreadStates(pid int) []byte {
	var states []byte
	dir := filepath.Join(string(p), strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, t := range threads {
		data, err := os.ReadFile(filepath.Join(dir, t.Name(), "stat"))
		if err != nil {
			continue // ended meanwhile
		}
		s, err := parseStat(data, "")
		switch {
		case err != nil:
		case s.PID == pid:
			states = append([]byte{s.State}, states...)
		default:
			states = append(states, s.State)
		}
	}
	return states
}

// parseStat reads one line. The command's name is in parentheses and may itself hold parentheses, spaces and line ends, so
// the fields are counted from the last closing one. known is a name that it probably is, which spares making it.
func parseStat(data []byte, known string) (Stat, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return Stat{}, errors.New("stat: no command name")
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(data[:open])))
	if err != nil {
		return Stat{}, fmt.Errorf("stat: pid: %w", err)
	}
	if string(data[open+1:end]) != known {
		known = string(data[open+1 : end])
	}
	s := Stat{PID: pid, Comm: known}
	// Fields after the name, numbered as proc_pid_stat(5) does: state is the third.
	var user, system uint64
	field := 3
	for f := range bytes.FieldsSeq(data[end+1:]) {
		switch field {
		case 3:
			s.State = f[0]
		case 4:
			s.PPID = int(number(f))
		case 5:
			s.PGRP = int(number(f))
		case 6:
			s.Session = int(number(f))
		case 14:
			user = number(f)
		case 15:
			system = number(f)
		case 20:
			s.Threads = int(number(f))
		case 22:
			s.Start = number(f)
		}
		field++
	}
	if field <= 22 {
		return Stat{}, fmt.Errorf("stat of %d: only %d fields", pid, field-1)
	}
	s.CPU = time.Duration(user+system) * (time.Second / ticksPerSecond)
	return s, nil
}

// memory reads RSS, anonymous and swapped bytes from /proc/PID/status. A zombie has none of these lines.
func (p Proc) memory(pid int) (rss, anon, swap int64, err error) {
	data, release, err := p.read(pid, "status")
	if err != nil {
		return 0, 0, 0, err
	}
	defer release()
	for line := range bytes.Lines(data) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		switch string(key) {
		case "VmRSS":
			rss = kibibytes(value)
		case "RssAnon":
			anon = kibibytes(value)
		case "VmSwap":
			swap = kibibytes(value)
		}
	}
	return rss, anon, swap, nil
}

func kibibytes(v []byte) int64 {
	v, _, _ = bytes.Cut(bytes.TrimSpace(v), []byte(" "))
	return int64(number(v)) << 10
}

// number reads decimal digits and stops at anything else.
func number(b []byte) (n uint64) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// FDLimit reads the soft limit of open files.
func (p Proc) FDLimit(pid int) (int64, error) {
	soft, _, err := p.FDLimits(pid)
	return soft, err
}

// FDLimits reads the soft and the hard limit of open files.
func (p Proc) FDLimits(pid int) (soft, hard int64, err error) {
	data, release, err := p.read(pid, "limits")
	if err != nil {
		return 0, 0, err
	}
	defer release()
	for line := range bytes.Lines(data) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files"))
		if !ok {
			continue
		}
		if f := bytes.Fields(rest); len(f) >= 2 {
			return limit(f[0]), limit(f[1]), nil
		}
	}
	return 0, 0, fmt.Errorf("limits of %d: no line for open files", pid)
}

func limit(f []byte) int64 {
	if string(f) == "unlimited" {
		return Unlimited
	}
	return int64(number(f))
}

// FDs counts open descriptors. The kernel tells the count as the size of the folder since Linux 6.2, which costs 4 µs at any
// count; before, and in trees of files, the entries are counted without looking at them.
func (p Proc) FDs(pid int) (int64, error) {
	path := p.path(pid, "fd")
	if p.kernel() {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return 0, gone(pid, err)
		}
		if st.Size > 0 {
			return st.Size, nil
		}
	}
	names, err := entries(path)
	if err != nil {
		return 0, gone(pid, err)
	}
	return int64(len(names)), nil
}

// kernel says whether p is a real proc file system. The answer for System is the same for the life of the process.
func (p Proc) kernel() bool {
	if p == System {
		return systemIsKernel()
	}
	return isProc(string(p))
}

var systemIsKernel = sync.OnceValue(func() bool { return isProc(string(System)) })

func isProc(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}

func entries(path string) ([]string, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (p Proc) path(pid int, name string) string {
	return string(p) + "/" + strconv.Itoa(pid) + "/" + name
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}

// read returns the content of a small file of a process. It goes around os.File, which would register each of these
// short-lived descriptors with the poller. release gives the buffer back.
func (p Proc) read(pid int, name string) (data []byte, release func(), err error) {
	buf := buffers.Get().(*[]byte)
	read := readInto
	if p.kernel() {
		read = readKernel
	}
	n, err := read(p.path(pid, name), *buf)
	if err != nil {
		buffers.Put(buf)
		return nil, nil, gone(pid, err)
	}
	return (*buf)[:n], func() { buffers.Put(buf) }, nil
}

func readInto(path string, buf []byte) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := retry(func() (int, error) { return unix.Read(fd, buf[n:]) })
		if err != nil {
			return 0, err
		}
		n += m
		// The kernel makes these files whole at the first read, so a read that leaves room has reached the end.
		if m == 0 || n < len(buf) {
			break
		}
	}
	return n, nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// gone turns the errors that the kernel gives for an ended process into ErrGone.
func gone(pid int, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// Environ reads the environment that a process was started with. It may be another user's and refused, or empty for a
// zombie.
func (p Proc) Environ(pid int) ([]string, error) {
	data, err := os.ReadFile(p.path(pid, "environ"))
	if err != nil {
		return nil, gone(pid, err)
	}
	var env []string
	for v := range bytes.SplitSeq(data, []byte{0}) {
		if len(v) > 0 {
			env = append(env, string(v))
		}
	}
	return env, nil
}

// OOMKills reads how many processes the kernel has killed for want of memory since boot, 0 if it does not tell.
func (p Proc) OOMKills() uint64 {
	data, err := os.ReadFile(filepath.Join(string(p), "vmstat"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			return number(rest)
		}
	}
	return 0
}

// Memory reads how much memory the machine has, or the control group of this process if that allows less. It is 0 if the
// kernel does not tell.
func (p Proc) Memory() int64 {
	total := int64(0)
	if data, err := os.ReadFile(filepath.Join(string(p), "meminfo")); err == nil {
		for line := range bytes.Lines(data) {
			if rest, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
				total = kibibytes(rest)
			}
		}
	}
	data, _ := os.ReadFile(filepath.Join(string(p), "self", "cgroup"))
	for line := range bytes.Lines(data) {
		group, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::"))
		if !ok {
			continue
		}
		for dir := string(group); dir != "/" && dir != "." && dir != ""; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", dir, "memory.max"))
			if most := int64(number(bytes.TrimSpace(text))); err == nil && most > 0 && (total == 0 || most < total) {
				total = most
			}
		}
	}
	return total
}
