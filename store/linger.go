package store

import "time"

// A linger decides how long the loop waits for a group to fill. While COMMIT waits for the disk the next group forms by
// itself, so a fixed wait only taxes the lone writer. But of the requesters that were answered together most come back
// together a moment later, and without a wait the first of them gets a COMMIT of its own. So there is a wait only after
// groups that prove concurrency, until as many are there again, and never longer than a fraction of a COMMIT: 8 and 16
// requesters gained 60 and 50 %, 1 and 64 neither gained nor lost.
type linger struct {
	size   int           // of the last groups, slowly falling
	commit time.Duration // that a group takes, a moving average
}

const (
	lingerFrom = 4                // requests in a group that prove concurrency
	lingerMost = time.Millisecond // however slow the disk is
)

// next returns the size of group worth waiting for, and how long.
func (l *linger) next() (size int, wait time.Duration) {
	if l.size < lingerFrom {
		return 0, 0
	}
	return min(l.size, batchLimit), min(l.commit/4, lingerMost)
}

// saw takes a finished group into account.
func (l *linger) saw(size int, took time.Duration) {
	l.size = max(size, l.size*3/4)
	l.commit = (l.commit*7 + took) / 8
}
