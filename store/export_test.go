package store

import "context"

// Request runs statements as one request of the writer, for tests of the writer itself.
func (s *State) Request(ctx context.Context, fn func(exec func(query string, args ...any) error) error) error {
	return s.w.do(ctx, func(t *tx) error {
		return fn(func(query string, args ...any) error {
			_, err := t.run(query, args...)
			return err
		})
	})
}

// Read holds a read open while fn runs.
func (s *State) Read(ctx context.Context, fn func(ctx context.Context, count func(query string) (int, error)) error) error {
	return s.readers.do(ctx, func(t *tx) error {
		return fn(t.ctx, func(query string) (n int, err error) { return n, t.get(query, nil, &n) })
	})
}

// Queued is the number of requests that wait.
func (s *State) Queued() int { return len(s.w.queue) }

// Frames is the length of the WAL.
func (s *State) Frames(ctx context.Context) (log int64, err error) {
	err = s.w.do(ctx, func(t *tx) error {
		var busy, done int64
		return t.get("PRAGMA wal_checkpoint(NOOP)", nil, &busy, &log, &done)
	})
	return log, err
}

// SetMigrationHook is for tests that die inside a migration.
func SetMigrationHook(fn func(number int, committed bool)) { migrationHook = fn }

// Constants and pieces that tests look at.
const (
	QueueLength    = queueLength
	BatchLimit     = batchLimit
	UnseenEach     = unseenEach
	JournalLength  = journalLength
	SnapshotSuffix = snapshotSuffix
	GateFrames     = gateFrames
)

var (
	LockLine       = lockLine
	LockHolder     = lockHolder
	RetiredHolders = retiredHolders
	DecodeContent  = decodeContent
	DecodeCalls    = decodeCalls
)
