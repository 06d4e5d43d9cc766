package store

import (
	"context"
	"errors"
	"sync"
)

// heldEvents is how many entries are kept in memory while the file takes none: hours of a quiet supervisor, about 2 MB.
const heldEvents = 5000

// A holder of entries keeps those in memory that the file does not take now. They have the numbers that the file would
// have given them, and are written when it takes them.
type eventHolder struct {
	mu     sync.Mutex
	events []Event // oldest first
	last   int64   // number of the newest entry, here or in the file
}

// unwritable says that a write failed by what may pass, and that nothing was written.
func unwritable(err error) bool {
	return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrDiskFull) || errors.Is(err, ErrSuspended)
}

// put writes an entry, after those that wait, or keeps it in memory.
func (h *eventHolder) put(ctx context.Context, d *database, e Event) (id int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err = h.flush(ctx, d); err == nil {
		id, err = write(ctx, d, func(t *tx) (int64, error) { return insertEvent(t, e) })
	}
	if err == nil {
		h.last = id
		return id, nil
	}
	if !unwritable(err) {
		return 0, err
	}
	if h.last == 0 { // of this process
		h.last, _ = read(ctx, d, func(t *tx) (id int64, err error) {
			return id, t.get("SELECT coalesce(max(id), 0) FROM events", nil, &id)
		})
	}
	h.last++
	e.ID = h.last
	h.events = append(h.events, e)
	if len(h.events) > heldEvents {
		h.events = h.events[1:]
	}
	return e.ID, nil
}

// flush writes what waits.
func (h *eventHolder) flush(ctx context.Context, d *database) error {
	if len(h.events) == 0 {
		return nil
	}
	_, err := write(ctx, d, func(t *tx) (int64, error) {
		for _, e := range h.events {
			if _, err := insertEvent(t, e); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	if err == nil {
		h.events = nil
	}
	return err
}

// selected returns the entries in memory that f selects, oldest first.
func (h *eventHolder) selected(f EventFilter) (list []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if f.Selects(e) {
			list = append(list, e)
		}
	}
	return list
}

// within cuts a list of entries as the filter asks: the newest, or those that follow one.
func (f EventFilter) within(list []Event) []Event {
	n := orDefault(f.Limit)
	switch {
	case len(list) <= n:
		return list
	case f.AfterID > 0:
		return list[:n]
	}
	return list[len(list)-n:]
}
