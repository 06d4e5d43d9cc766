package supervisor

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
static void give_back(void) { malloc_trim(0); }
#else
static void give_back(void) {}
#endif
*/
import "C"

import "runtime/debug"

// giveBack returns the memory that the start needed and nothing needs any more to the system: migrations, handshakes
// and looks at all processes leave a MiB or more of garbage. Go would keep it until its heap has doubled, which takes long
// when idle, and glibc keeps what SQLite frees in the arena of each thread. It stops the program for some milliseconds, so
// it is done once, when everything serves.
func giveBack() {
	debug.FreeOSMemory()
	C.give_back()
}
