package logs

import "sync/atomic"

// A Follower gets each new line of a worker. It never holds the Book up: what does not fit in its queue it misses.
type Follower struct {
	book   *Book
	worker string
	lines  chan Line
	missed atomic.Int64
}

// Follow begins with the next line of a worker, or of all with an empty name. The follower must be closed.
func (b *Book) Follow(worker string) *Follower {
	_, f := b.follow(worker, 0, true)
	return f
}

// follow takes the tail and begins to follow in one step, so that no line is missed or comes twice.
func (b *Book) follow(worker string, tail int, follow bool) ([]Line, *Follower) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := b.tail(worker, tail)
	if !follow {
		return lines, nil
	}
	f := &Follower{book: b, worker: worker, lines: make(chan Line, followerLines)}
	if b.closed {
		close(f.lines)
	} else {
		b.followers[f] = struct{}{}
	}
	return lines, f
}

func (f *Follower) offer(l Line) {
	if f.worker != "" && f.worker != l.Worker {
		return
	}
	select {
	case f.lines <- l:
	default:
		f.missed.Add(1)
	}
}

// Lines is closed when the follower or the Book is.
func (f *Follower) Lines() <-chan Line { return f.lines }

// Missed returns how many lines did not fit.
func (f *Follower) Missed() int64 { return f.missed.Load() }

// Close ends the follower.
func (f *Follower) Close() {
	f.book.mu.Lock()
	defer f.book.mu.Unlock()
	if _, ok := f.book.followers[f]; ok {
		delete(f.book.followers, f)
		close(f.lines)
	}
}
