package sample

import (
	"bytes"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Eyes are the files of one process in /proc, kept open: a reading is three system calls instead of nine, and none of them
// looks a path up. They stay those of the process they were opened for, whoever gets its pid. The calls go around Go's
// scheduler, which would wake its monitor for each: these files are made by the kernel on the spot and never wait.
type eyes struct {
	mu   sync.Mutex // a reading is over before they are closed
	shut bool
	stat int
	mem  int // statm
	fds  int // the folder, by name only: its size is the number of descriptors
	comm string
	buf  [512]byte
	memo memo
}

// open returns the eyes on a process, nil if its files cannot be kept open.
func (p Proc) open(pid int) *eyes {
	if !p.kernel() {
		return nil
	}
	e := &eyes{stat: -1, mem: -1, fds: -1}
	for _, f := range []struct {
		fd    *int
		name  string
		flags int
	}{
		{&e.stat, "stat", unix.O_RDONLY}, {&e.mem, "statm", unix.O_RDONLY}, {&e.fds, "fd", unix.O_PATH | unix.O_DIRECTORY},
	} {
		fd, err := retry(func() (int, error) { return unix.Open(p.path(pid, f.name), f.flags|unix.O_CLOEXEC, 0) })
		if err != nil {
			e.close()
			return nil
		}
		*f.fd = fd
	}
	return e
}

func (e *eyes) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shut {
		return
	}
	e.shut = true
	for _, fd := range []int{e.stat, e.mem, e.fds} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// look takes a reading without the limit. FDs is 0 on a kernel that does not tell it (before 6.2).
func (e *eyes) look(pid int) (Process, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shut {
		return Process{}, gone(pid, unix.ESRCH)
	}
	spent, known := e.memo.asleep(pid)
	if known {
		return e.memo.seen, nil
	}
	p, err := e.readAll(pid)
	e.memo = memo{spent: spent, seen: p}
	return p, err
}

// awake says whether the process had run at the last look.
func (e *eyes) awake() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.memo.slept == 0
}

func (e *eyes) readAll(pid int) (Process, error) {
	text, err := e.read(e.stat)
	if err != nil {
		return Process{}, gone(pid, err)
	}
	s, err := parseStat(text, e.comm)
	if err != nil {
		return Process{}, err
	}
	e.comm = s.Comm
	p := Process{Stat: s}
	if text, err = e.read(e.mem); err != nil {
		return Process{}, gone(pid, err)
	}
	p.RSS, p.Anon = parseStatm(text)
	var st unix.Statx_t
	if err := statxOf(e.fds, &st); err != nil {
		return Process{}, gone(pid, err)
	}
	p.FDs = int64(st.Size)
	return p, nil
}

// pageSize is the unit of statm.
var pageSize = int64(os.Getpagesize())

// parseStatm returns resident and anonymous bytes: what is resident and not shared is anonymous.
func parseStatm(text []byte) (rss, anon int64) {
	field := 0
	for f := range bytes.FieldsSeq(text) {
		switch field {
		case 1:
			rss = int64(number(f)) * pageSize
		case 2:
			return rss, rss - int64(number(f))*pageSize
		}
		field++
	}
	return rss, rss
}

// read returns the text of a file from its beginning.
func (e *eyes) read(fd int) ([]byte, error) { return readAgain(fd, e.buf[:]) }

// readAgain reads an open file of /proc from its beginning, which makes it anew.
func readAgain(fd int, buf []byte) ([]byte, error) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0, 0)
		switch errno {
		case 0:
			return buf[:n], nil
		case unix.EINTR:
		default:
			return nil, errno
		}
	}
}

// readKernel is readInto for files of the kernel's own /proc, around Go's scheduler like all here.
func readKernel(path string, buf []byte) (int, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return 0, err
	}
	for {
		at := unix.AT_FDCWD
		fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		text, err := readAgain(int(fd), buf)
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		return len(text), err
	}
}

var noPath = [1]byte{}

func statxOf(fd int, st *unix.Statx_t) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&noPath[0])),
		unix.AT_EMPTY_PATH, unix.STATX_SIZE, uintptr(unsafe.Pointer(st)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
