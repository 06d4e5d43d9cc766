package supervisor

/*
#include <sys/prctl.h>

// Go's monitor thread sleeps 20 microseconds at a time while anything runs, so each millisecond of work costs it a dozen
// wakeups, most of those of an idle supervisor. A millisecond of slack makes that one. Other timers here may be as late:
// none is finer. It is set before the first thread is made, because threads inherit it, and workers do too.
__attribute__((constructor)) static void be_patient(void) { prctl(PR_SET_TIMERSLACK, 1000000UL, 0, 0, 0); }
*/
import "C"
