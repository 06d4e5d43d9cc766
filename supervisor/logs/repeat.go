package logs

import (
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// repeatsShown is how often a line is kept before it is only counted: often enough to see that it comes again and again.
	repeatsShown = 5
	// repeatWindow is how long a line must not have come to be news again, and how often counts are said.
	repeatWindow = 10 * time.Second
	// repeatLines of a worker are told apart: the lines of a trace that is printed again and again, and some others.
	repeatLines = 128
	// repeatText is how much of a line comes with its count.
	repeatText = 200
)

// A repeat is a line that a worker has said.
type repeat struct {
	message string // once it is counted: its beginning, without secrets, as part of one that is cut would not be known again
	level   hclog.Level
	pid     int
	times   int
	unsaid  int // not kept and not yet told
	last    time.Time
}

var repeatSeed = maphash.MakeSeed()

// key is the same for lines of one process that say the same. What a worker says before each of its ends is needed each time:
// it is the reason of that end.
func (l Line) key() uint64 {
	var h maphash.Hash
	h.SetSeed(repeatSeed)
	for _, s := range []string{strconv.Itoa(l.PID), l.Stream, l.Message} {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(0)
	}
	for _, f := range l.Fields {
		_, _ = h.WriteString(f.Key)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(f.Value)
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// repeated says whether a line has come so often of late that it is counted and not kept.
func (b *Book) repeated(v *voice, l Line) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || l.Level < b.Level() {
		return false
	}
	now, key := b.o.Now(), l.key()
	r := v.repeats[key]
	if r == nil || r.unsaid == 0 && now.Sub(r.last) > repeatWindow {
		v.remember(key, &repeat{level: l.Level, pid: l.PID, times: 1, last: now})
		return false
	}
	r.last = now
	if r.times++; r.times <= repeatsShown {
		return false
	}
	if r.message == "" {
		text := b.redact(l.Message)
		r.message = strings.ToValidUTF8(text[:min(len(text), repeatText)], "")
	}
	r.unsaid++
	if b.counting == nil {
		b.counting = time.AfterFunc(repeatWindow, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.counting = nil
			b.sayRepeats()
		})
	}
	return true
}

// remember keeps a line to be told from others. Of more than can be told apart those go of which nothing has to be said.
func (v *voice) remember(key uint64, r *repeat) {
	if v.repeats == nil {
		v.repeats = map[uint64]*repeat{}
	}
	if len(v.repeats) >= repeatLines {
		for k, old := range v.repeats {
			if old.unsaid == 0 {
				delete(v.repeats, k)
			}
		}
	}
	if len(v.repeats) < repeatLines {
		v.repeats[key] = r
	}
}

// sayRepeats tells how often lines have come that were not kept. b.mu must be held.
func (b *Book) sayRepeats() {
	for _, v := range b.voices {
		for _, r := range v.repeats {
			if r.unsaid == 0 {
				continue
			}
			n := strconv.Itoa(r.unsaid)
			r.unsaid = 0
			b.add(Line{
				Worker: v.name, PID: r.pid, Level: r.level, Stream: StreamLog,
				Message: "the same line " + n + " times more: " + r.message, Fields: []Field{{"repeated", n}},
			})
		}
	}
}
