package supervisor

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
static void give_back(void) { malloc_trim(0); }
// glibc gives each thread that calls SQLite an arena of its own, which keeps what was freed in it. Two hold no one up: it is
// the writers that work at the same time, and they wait for the disk.
__attribute__((constructor)) static void few_arenas(void) { mallopt(M_ARENA_MAX, 2); }
#else
static void give_back(void) {}
#endif
*/
import "C"

import (
	"bufio"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// collectAt is how much garbage there may be, in percent of what is in use, before it is collected. Little is made here, so
// that a collection twice as often as Go's default costs nothing that can be measured, and the heap stays smaller.
const collectAt = 50

// settleTime is when a supervisor has done everything once that it does again and again when idle.
const settleTime = time.Minute

// giveBack returns the memory that the start needed and nothing needs any more to the system: migrations, handshakes
// and looks at all processes leave a MiB or more of garbage. Go would keep it until its heap has doubled, which takes long
// when idle, and glibc keeps what SQLite frees in the arena of each thread. It stops the program for some milliseconds, so
// it is done when everything serves, and once more when that has settled.
func giveBack() {
	debug.SetGCPercent(collectAt)
	debug.FreeOSMemory()
	C.give_back()
	forgetProgram()
}

// forgetProgram takes the pages of the program itself out of this process's memory: the commands, the start and the
// migrations are half of it and are not run again. What is used is there again at its next use, from the page cache.
func forgetProgram() {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for _, m := range cleanMappings(bufio.NewScanner(f)) {
		// The system call itself, as there is no slice of Go's behind these addresses.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
	}
}

// forgetEvery is the least time between two looks for what a collection has left: a busy supervisor collects more often, and
// has the use of what it would forget.
const forgetEvery = time.Minute

// An afterCollection forgets the program's pages when there was a garbage collection: it reads tables of the whole program,
// pages that nothing else needs until the next one, which comes every two minutes when idle. It begins a minute after its
// first beat, as a start has the use of all. The zero value is ready. It is for one goroutine.
type afterCollection struct {
	seen uint64 // collections
	last time.Time
	read [1]metrics.Sample
}

// beat is called about once a second, and costs a microsecond when there is nothing to do.
func (a *afterCollection) beat(now time.Time) {
	if a.last.IsZero() {
		a.last = now
	}
	if now.Sub(a.last) < forgetEvery {
		return
	}
	a.read[0].Name = "/gc/cycles/total:gc-cycles"
	metrics.Read(a.read[:])
	if n := a.read[0].Value.Uint64(); n != a.seen {
		a.seen, a.last = n, now
		forgetProgram()
	}
}

type mapping struct{ from, to uintptr }

// cleanMappings finds the mappings of files in a text like /proc/self/smaps that cannot be written and of which no page
// differs from the file: only these come back as they were.
func cleanMappings(lines *bufio.Scanner) (list []mapping) {
	var m mapping
	candidate := false
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		if from, to, ok := strings.Cut(fields[0], "-"); ok && !strings.HasSuffix(fields[0], ":") {
			a, errA := strconv.ParseUint(from, 16, 64)
			b, errB := strconv.ParseUint(to, 16, 64)
			m = mapping{uintptr(a), uintptr(b)}
			candidate = errA == nil && errB == nil && len(fields) >= 6 && strings.HasPrefix(fields[5], "/") &&
				(fields[1] == "r-xp" || fields[1] == "r--p") && !strings.HasSuffix(lines.Text(), "(deleted)")
			continue
		}
		if candidate && fields[0] == "Anonymous:" {
			if fields[1] == "0" {
				list = append(list, m)
			}
			candidate = false
		}
	}
	return list
}
