package store

import (
	"context"
	"io"
	"os"
	"time"
)

// Request runs statements as one request of the writer, for tests of the writer itself.
func (s *State) Request(ctx context.Context, fn func(exec func(query string, args ...any) error) error) error {
	return s.w.do(ctx, func(t *tx) error {
		return fn(func(query string, args ...any) error {
			_, err := t.run(query, args...)
			return err
		})
	})
}

// ReadThrough reads a file as the look for damage does.
var ReadThrough = readThrough

// Read holds a read open while fn runs.
func (s *State) Read(ctx context.Context, fn func(ctx context.Context, count func(query string) (int, error)) error) error {
	return s.readers.do(ctx, func(t *tx) error {
		return fn(t.ctx, func(query string) (n int, err error) { return n, t.get(query, nil, &n) })
	})
}

// Queued is the number of requests that wait.
func (s *State) Queued() int { return len(s.w.queue) }

// Frames is the length of the WAL.
func (s *State) Frames() (log int64, err error) {
	c, err := dial(s.path, "_busy_timeout=5000")
	if err != nil {
		return 0, err
	}
	defer c.close()
	_, log, _, err = c.checkpoint("NOOP")
	return log, err
}

// SetWALFrames lets a test do with a smaller WAL.
func SetWALFrames(copy, gate, tell int64) (restore func()) {
	was := wal
	wal = walFrames{copy, gate, tell}
	return func() { wal = was }
}

// SetMigrationHook is for tests that die inside a migration.
func SetMigrationHook(fn func(number int, committed bool)) { migrationHook = fn }

// Constants and pieces that tests look at.
const (
	QueueLength    = queueLength
	BatchLimit     = batchLimit
	BatchTime      = batchTime
	UnseenEach     = unseenEach
	JournalLength  = journalLength
	SnapshotSuffix = snapshotSuffix
)

var (
	LockLine      = lockLine
	LockHolder    = lockHolder
	DecodeContent = decodeContent
	DecodeCalls   = decodeCalls
)

// Match is a query as the index gets it.
func Match(text string) string { return parseQuery(text).match() }

// PretendFileSystem makes every folder one of a file system with that magic number.
func PretendFileSystem(kind uint32, readOnly bool) (restore func()) {
	was := lookAt
	lookAt = func(string) (uint32, bool, error) { return kind, readOnly, nil }
	return func() { lookAt = was }
}

// Retain has the loop look for what is old now.
func (s *State) Retain() {
	_ = s.w.between(context.Background(), func(*conn) error {
		s.w.retention.next, s.w.retention.wall = time.Time{}, time.Time{}
		s.w.retain()
		return nil
	})
}

// RetainAfter makes a change and has the loop look for what is old next, if it trusts its clock.
func (s *State) RetainAfter(change func()) {
	_ = s.w.between(context.Background(), func(*conn) error {
		s.w.retention.next = time.Time{}
		change()
		s.w.retain()
		return nil
	})
}

// PretendDisk has the disk of every file be another one when it is asked for errors.
func PretendDisk(disk io.ReaderAt) (restore func()) {
	was := onDisk
	onDisk = func(*os.File) io.ReaderAt { return disk }
	return func() { onDisk = was }
}

// Looking says that the file, or its disk, is being looked at.
func (s *State) Looking() (on bool) {
	j := job{func(*conn) error { on = s.w.suspicion.stop != nil; return nil }, make(chan error, 1)}
	s.w.jobs <- j
	<-j.done
	return on
}
