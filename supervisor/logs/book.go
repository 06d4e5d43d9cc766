package logs

import (
	"context"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

const (
	// linesPerSecond and linesAtOnce are what one worker may print. A busy agent prints about 20 lines a turn; 2000 at
	// once hold a burst of debug lines or a goroutine dump of a few hundred goroutines.
	linesPerSecond = 200
	linesAtOnce    = 2000
	// dumpBytes of a process's last words are kept whatever its budget is: the trace that says why it died comes right
	// after the flood that it died in. It is half of ringBytes, so that lines from before stay readable.
	dumpBytes = 256 << 10
	ringBytes = 512 << 10
	// followerLines wait for a follower, outputLines for the writer, before lines are lost.
	followerLines = 1024
	outputLines   = 4096
	// announceEvery is how often losses are said.
	announceEvery = time.Second
	// closeBudget bounds how long Close waits for a stuck writer.
	closeBudget = time.Second
)

// Options configure a Book. The zero value keeps everything and writes nothing.
type Options struct {
	Out io.Writer // where lines are written, as a rule stderr; nil: nowhere
	// Journal takes lines instead of Out; those that it refuses go to Out. nil: there is none.
	Journal func(JournalEntry) error
	JSON    bool                // write JSON objects instead of text
	Level   hclog.Level         // lines below are neither kept nor written; NoLevel: Info
	Redact  func(string) string // applied to every text before it is kept; nil: nothing is secret
	Now     func() time.Time    // nil: time.Now
}

// A Book keeps, hands on and writes log lines. It is safe for concurrent use and nothing about it blocks.
type Book struct {
	o     Options
	level atomic.Int32 // hclog.Level, of o.Level at first
	out   chan *Line   // nil without a writer; a pointer each: room for so many lines themselves is half a MiB

	written sync.WaitGroup
	lost    atomic.Int64 // lines that the writer was too slow for

	mu        sync.Mutex
	closed    bool
	seq       uint64
	voices    map[string]*voice
	followers map[*Follower]struct{}
	announce  *time.Timer // armed while there are losses to say
	counting  *time.Timer // armed while there are repeats to say
}

// A voice is all that one worker has said, over all its processes.
type voice struct {
	name    string
	limiter *rate.Limiter // only used under Book.mu
	ring    ring
	dropped int64 // in all
	unsaid  int64 // dropped and not yet announced
	repeats map[uint64]*repeat
}

// NewBook returns a Book. It must be closed.
func NewBook(o Options) *Book {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Level == hclog.NoLevel {
		o.Level = hclog.Info
	}
	b := &Book{o: o, voices: map[string]*voice{}, followers: map[*Follower]struct{}{}}
	b.SetLevel(o.Level)
	if o.Out != nil {
		b.out = make(chan *Line, outputLines)
		b.written.Go(func() { write(o.Out, o.JSON, o.Journal, b.out) })
	}
	return b
}

// SetLevel changes below which level lines are dropped, from the next line on.
func (b *Book) SetLevel(l hclog.Level) { b.level.Store(int32(l)) }

// Level returns the lowest level that is kept.
func (b *Book) Level() hclog.Level { return hclog.Level(b.level.Load()) }

// Close writes what is queued and ends all followers. Lines that come later are lost.
func (b *Book) Close() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.sayRepeats()
	b.closed = true
	for _, t := range []*time.Timer{b.announce, b.counting} {
		if t != nil {
			t.Stop()
		}
	}
	for f := range b.followers {
		close(f.lines)
	}
	clear(b.followers)
	if b.out != nil {
		close(b.out)
	}
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		b.written.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeBudget):
	}
}

// Add keeps a line. It is how the supervisor's own lines and announcements enter; a worker's go through a Source.
func (b *Book) Add(l Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(l)
}

func (b *Book) add(l Line) {
	if b.closed || l.Level < b.Level() {
		return
	}
	l.Message = b.redact(l.Message)
	for i := range l.Fields {
		l.Fields[i].Value = b.redact(l.Fields[i].Value)
	}
	if l.Time.IsZero() {
		l.Time = b.o.Now()
	}
	b.seq++
	l.seq = b.seq
	b.voice(l.Worker).ring.add(l)
	for f := range b.followers {
		f.offer(l)
	}
	if b.out == nil {
		return
	}
	queued := l
	select {
	case b.out <- &queued:
	default:
		b.lost.Add(1)
	}
}

func (b *Book) redact(text string) string {
	if b.o.Redact == nil {
		return text
	}
	return b.o.Redact(text)
}

func (b *Book) voice(name string) *voice {
	v, ok := b.voices[name]
	if !ok {
		v = &voice{name: name, limiter: rate.NewLimiter(linesPerSecond, linesAtOnce)}
		b.voices[name] = v
	}
	return v
}

// allow takes one line from the budget of a worker.
func (b *Book) allow(v *voice) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return v.limiter.AllowN(b.o.Now(), 1)
}

// drop counts lines that were over the budget and sees to it that this is said within announceEvery.
func (b *Book) drop(v *voice, lines int) {
	if lines == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v.dropped += int64(lines)
	v.unsaid += int64(lines)
	if b.announce == nil && !b.closed {
		b.announce = time.AfterFunc(announceEvery, b.sayDropped)
	}
}

func (b *Book) sayDropped() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.announce = nil
	for _, v := range b.voices {
		if v.unsaid == 0 {
			continue
		}
		n := v.unsaid
		v.unsaid = 0
		b.add(Line{
			Worker: v.name, Level: hclog.Warn, Stream: StreamLog,
			Message: "dropped " + wording.Count(n, "log line", "log lines") + ": more than " + strconv.Itoa(linesPerSecond) + " a second",
			Fields:  []Field{{"dropped", strconv.FormatInt(n, 10)}},
		})
	}
}

// Dropped returns how many lines of a worker were over its budget.
func (b *Book) Dropped(worker string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v, ok := b.voices[worker]; ok {
		return v.dropped
	}
	return 0
}

// Lost returns how many lines were not written because the writer was stuck.
func (b *Book) Lost() int64 { return b.lost.Load() }

// Voices returns the names of those of whom lines are kept, in order.
func (b *Book) Voices() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name, v := range b.voices {
		if len(v.ring.newest(1)) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Tail returns up to n of the newest lines of a worker, or of all with an empty name, oldest first.
func (b *Book) Tail(worker string, n int) []Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tail(worker, n)
}

func (b *Book) tail(worker string, n int) []Line {
	if worker != "" {
		if v, ok := b.voices[worker]; ok {
			return v.ring.newest(n)
		}
		return nil
	}
	var tails [][]Line
	for _, v := range b.voices {
		tails = append(tails, v.ring.newest(n))
	}
	return newestOf(tails, n)
}

// Read sends the last lines of a worker, or of all with an empty name, and then, with follow, each new one until ctx or
// the Book ends. A reader that is too slow is told how much it missed.
func (b *Book) Read(ctx context.Context, worker string, tail int, follow bool, send func(*controlv1.LogLine) error) error {
	lines, f := b.follow(worker, tail, follow)
	if f != nil {
		defer f.Close()
	}
	for _, l := range lines {
		if err := send(l.Proto()); err != nil {
			return err
		}
	}
	if f == nil {
		return nil
	}
	var said int64
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l, ok := <-f.lines:
			if !ok {
				return nil
			}
			if missed := f.Missed(); missed > said {
				if err := send(missedLine(missed-said, b.o.Now()).Proto()); err != nil {
					return err
				}
				said = missed
			}
			if err := send(l.Proto()); err != nil {
				return err
			}
		}
	}
}

func missedLine(n int64, now time.Time) Line {
	return Line{
		Time: now, Worker: Supervisor, Level: hclog.Warn, Stream: StreamLog,
		Message: wording.Count(n, "line is", "lines are") + " missing here: this reader was too slow",
	}
}
