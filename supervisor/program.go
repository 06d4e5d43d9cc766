package supervisor

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A program is the pages of this executable in the memory of its own process. The commands, the start and the migrations are
// most of it and are not run again, and where one page is used the kernel maps the fifteen around it too: an idle supervisor
// uses a quarter of what it has once touched.
type program struct {
	mappings []mapping
}

type mapping struct{ from, to uintptr }

// newProgram finds the mappings of the executable. They stay for the life of the process, unlike those of libraries. Where
// the kernel does not tell there are none.
func newProgram() *program {
	p := &program{}
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return p
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return p
	}
	defer func() { _ = f.Close() }()
	p.mappings = mappingsOf(path, bufio.NewScanner(f))
	for _, m := range p.mappings {
		// A file that was written at once may lie in the page cache as pages of 2 MiB, of which a byte would bring in all.
		m.advise(unix.MADV_NOHUGEPAGE)
	}
	return p
}

// mappingsOf finds the mappings of a file that cannot be written in a text like /proc/self/maps.
func mappingsOf(path string, lines *bufio.Scanner) (list []mapping) {
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 || strings.TrimLeft(fields[5], " ") != path || fields[1] != "r-xp" && fields[1] != "r--p" {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		a, errA := strconv.ParseUint(from, 16, 64)
		b, errB := strconv.ParseUint(to, 16, 64)
		if errA == nil && errB == nil && a < b {
			list = append(list, mapping{uintptr(a), uintptr(b)})
		}
	}
	return list
}

// advise is madvise(2). It is the system call itself, as there is no slice of Go's behind these addresses.
func (m mapping) advise(how uintptr) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, how)
}

// forget takes the pages out of this process's memory. What is used is there again at its next use, from the page cache:
// that costs a page fault for each sixteen pages.
func (p *program) forget() {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for _, m := range p.mappings {
		if clean(f, m) {
			m.advise(unix.MADV_DONTNEED)
		}
	}
}

const (
	pagemapEntry = 8       // bytes a page, see Documentation/admin-guide/mm/pagemap.rst of the kernel
	pagePresent  = 1 << 63 // in memory
	pageSwapped  = 1 << 62
	pageOfFile   = 1 << 61 // or of shared memory
)

// clean says that all pages of a mapping are those of its file. One that a debugger has put a breakpoint into is not, nor one
// that the loader has written to; it would come back as it was before. pagemap is in the form of /proc/PID/pagemap.
func clean(pagemap io.ReaderAt, m mapping) bool {
	page := uintptr(os.Getpagesize())
	var entries [512 * pagemapEntry]byte
	for at, end := int64(m.from/page)*pagemapEntry, int64(m.to/page)*pagemapEntry; at < end; at += int64(len(entries)) {
		part := entries[:min(int64(len(entries)), end-at)]
		if n, _ := pagemap.ReadAt(part, at); n != len(part) {
			return false
		}
		for i := 0; i < len(part); i += pagemapEntry {
			if e := binary.NativeEndian.Uint64(part[i:]); e&(pagePresent|pageSwapped) != 0 && e&pageOfFile == 0 {
				return false
			}
		}
	}
	return true
}

const (
	// forgetEvery is how often an idle supervisor forgets its program. Idle workers are asked for their health at multiples of
	// this (worker.idleChecks of config's health_interval), which uses more of it than all else that an idle supervisor does.
	forgetEvery = 20 * time.Second
	// forgetAfter is how long that takes at most.
	forgetAfter = time.Second
)

// A forgetter has a program forgotten while nothing is done with it. A busy supervisor has the use of what it would forget.
// It is for one goroutine.
type forgetter struct {
	forget func()
	idle   func() bool
	from   time.Time
	last   time.Time // the multiple of forgetEvery that it was done after
}

// beat is called after each round of samples. It begins a while after the first one, as a start has the use of all.
func (f *forgetter) beat(now time.Time) {
	if f.from.IsZero() {
		f.from = now.Add(forgetEvery)
	}
	whole := now.Add(-forgetAfter).Truncate(forgetEvery)
	if now.Before(f.from) || whole.Equal(f.last) {
		return
	}
	f.last = whole
	if f.idle() {
		f.forget()
	}
}
