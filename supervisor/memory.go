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
	"runtime/debug"
	"time"
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
}
