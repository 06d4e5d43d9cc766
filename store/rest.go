package store

// rest gives back the pages of the file that connections keep and that nobody has asked for since the last time: SQLite holds
// on to a MiB or two of them for each, as long as it is open, while the kernel has the same pages in its own cache. It is called
// at each turn of a quiet loop; a connection that nobody uses costs it nothing.
func (w *writer) rest() {
	if w.conn != nil {
		w.conn.rest()
	}
	w.readers.rest()
}

// rest does so for the connections that nobody reads from, one at a time, so that no read waits for all of them.
func (r *readers) rest() {
	for range cap(r.free) {
		select {
		case c := <-r.free:
			if c == nil {
				return // the pool was closed
			}
			c.rest()
			r.free <- c
		default:
			return
		}
	}
}

// A use says when a connection was last worked with, in turns of the loop.
type use int

const (
	rested  use = iota // it has given back what it kept
	earlier            // before the last turn
	recent             // since the last turn
)

func (c *conn) rest() {
	switch c.use {
	case recent:
		c.use = earlier
	case earlier:
		// What cannot be given back is kept; nothing else follows from an error.
		_, _ = c.c.ExecContext(background, "PRAGMA shrink_memory")
		c.use = rested
	}
}
