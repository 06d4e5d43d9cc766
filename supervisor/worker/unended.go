package worker

import (
	"bytes"
	"fmt"
	"time"
)

// unended says how it is with a process that was killed and is not over within the limit, for a person who wants to know
// whether to look for a disk that hangs or only for a busy machine.
func (i *instance) unended() Exit {
	e := Exit{PID: i.id(), Code: -1, sent: i.process.signals()}
	if state := i.process.ended(); state != nil {
		e.setState(state)
		e.Message = fmt.Sprintf("its last output was not read, or what it left behind not ended, within %s", i.timing.Kill)
		return e
	}
	e.Message = notGone(i.process.sampler.Proc().ThreadStates(e.PID), i.timing.Kill)
	return e
}

// notGone is unended of a process that the kernel still has, by the states of its threads.
func notGone(threads []byte, limit time.Duration) string {
	text := fmt.Sprintf("it was not gone %s after SIGKILL", limit)
	switch {
	case bytes.IndexByte(threads, 'D') >= 0:
		return text + ", as it waits for a disk or another device (state D)"
	case len(threads) > 0:
		return text + fmt.Sprintf(" (state %c), as on a very busy machine", threads[0])
	}
	return text
}
