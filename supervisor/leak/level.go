package leak

import "math"

// binsKept is the length of each level. With 60 a level's whole window is six bins of the next one, and a sixth of it is
// ten bins: enough for a median.
const binsKept = 60

// widths are the bins of the levels in seconds; their windows are a minute, ten minutes, an hour, six hours, a day and a
// week. Each is a multiple of that of quietLevel.
var widths = [...]uint32{1, 10, 60, 360, 1440, 10800}

// quietLevel is the level whose bins tell growth in quiet from growth with work.
const quietLevel = 1

// nothing is the floor of a bin without an idle point.
var nothing = float32(math.Inf(1))

// A bin is what is left of the points of one stretch of time, in 24 bytes. float32 is exact for descriptors and good to
// 1 KiB at 16 GiB.
type bin struct {
	n           uint32 // its number since the first point
	work        uint32 // units of work ended so far
	quietTime   uint32 // seconds so far in which the worker was idle and had settled
	quietGrowth float32
	floor       float32 // the least idle value
	peak        float32 // the greatest value
}

// take adds what came later in the same stretch of time. To take the same again changes nothing.
func (b *bin) take(later bin) {
	b.work, b.quietTime, b.quietGrowth = later.work, later.quietTime, later.quietGrowth
	b.floor, b.peak = min(b.floor, later.floor), max(b.peak, later.peak)
}

func (b *bin) idle() bool { return b.floor < nothing }

// A level keeps the newest bins of one width.
type level struct {
	width uint32
	end   uint32 // the second at which the newest bin ends
	count int
	next  int
	bins  [binsKept]bin
}

// bin returns the bin that second sec falls in.
func (l *level) bin(sec uint32) *bin {
	if sec < l.end {
		return &l.bins[(l.next+binsKept-1)%binsKept]
	}
	n := sec / l.width
	b := &l.bins[l.next]
	*b = bin{n: n, floor: nothing}
	l.end = (n + 1) * l.width
	l.next = (l.next + 1) % binsKept
	l.count = min(l.count+1, binsKept)
	return b
}

// at returns the ith bin, oldest first.
func (l *level) at(i int) *bin {
	return &l.bins[(l.next-l.count+i+binsKept)%binsKept]
}

// reach returns the number of bins between the oldest and the newest, with those that are missing.
func (l *level) reach() int {
	if l.count == 0 {
		return 0
	}
	return int(l.at(l.count-1).n-l.at(0).n) + 1
}

// start returns the second at which b begins.
func (l *level) start(b *bin) float64 { return float64(b.n) * float64(l.width) }
