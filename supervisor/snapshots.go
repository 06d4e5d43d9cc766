package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

const (
	kindSnapshot = "snapshot"
	// automatic labels the snapshots that are made here and may be removed here.
	automatic = "auto"
	// firstSnapshot is the pause after the start: a supervisor that restarts again and again makes none.
	firstSnapshot = 10 * time.Minute
	// snapshotLook is the time between two looks at the clock. A timer for the whole interval would stand still while the
	// machine sleeps, and would not know of a changed configuration.
	snapshotLook = 10 * time.Minute
	// snapshotRetry is the pause after a snapshot that failed.
	snapshotRetry = time.Hour
	// snapshotRoom must be left on the disk after a snapshot, so that it does not cause what it is there for.
	snapshotRoom = 1 << 30
)

// A snapshotter makes a snapshot of the home once an interval, by the clock: what counts is the time in the newest one that
// it finds, whoever made it. The copies advance between groups of requests, so that nobody waits for them.
type snapshotter struct {
	home     string
	settings func() (every time.Duration, keep int)
	copyDB   backup.Copier
	now      func() time.Time
	record   func(kind, message string)
	log      hclog.Logger
	room     func() error // why there is no room for one
}

// keepSnapshots makes snapshots until ctx ends.
func (s *supervisor) keepSnapshots(ctx context.Context) {
	home := s.o.Config.Home
	(&snapshotter{
		home: home, copyDB: ownStores{s}.Copy, now: s.now, record: s.record, log: s.log, room: func() error { return roomFor(home) },
		settings: func() (time.Duration, int) {
			c := s.config().Supervisor
			return c.SnapshotInterval, c.SnapshotKeep
		},
	}).run(ctx)
}

func (s *snapshotter) run(ctx context.Context) {
	every, _ := s.settings()
	tick := time.NewTimer(s.pause(firstSnapshot, every))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		every, keep := s.settings()
		pause := s.pause(snapshotLook, every)
		if err := s.look(ctx, every, keep); err != nil && ctx.Err() == nil {
			s.record(kindSnapshot, err.Error())
			s.log.Warn("daily snapshot", "error", err)
			pause = max(pause, min(snapshotRetry, every))
		}
		tick.Reset(pause)
	}
}

// pause is the time to the next look: the usual one, or less for an interval that is shorter.
func (s *snapshotter) pause(usual, every time.Duration) time.Duration {
	if every <= 0 {
		return usual
	}
	return min(usual, every)
}

// look makes a snapshot if one is due, and removes those of its own that are too many.
func (s *snapshotter) look(ctx context.Context, every time.Duration, keep int) error {
	if every <= 0 {
		return nil
	}
	own, err := s.own()
	if err == nil && !s.due(own, every) {
		return nil
	}
	if err == nil {
		err = s.room()
	}
	if err != nil {
		return notMade(err)
	}
	made, err := backup.Quick(ctx, s.home, automatic, s.now(), s.copyDB)
	if err == nil || errors.Is(err, backup.ErrWithoutStore) {
		s.tell(made)
	} else {
		err = notMade(err)
	}
	own, lerr := s.own() // with the one that was made, which may miss a store
	err = errors.Join(err, lerr)
	for _, x := range backup.Excess(own, max(keep, 1)) {
		err = errors.Join(err, backup.Remove(s.home, x.ID))
	}
	return err
}

func notMade(err error) error { return fmt.Errorf("no snapshot was made: %w", err) }

// tell says what was made, and what is not in it because it could not be read.
func (s *snapshotter) tell(made backup.Snapshot) {
	text := fmt.Sprintf("snapshot %s of %s, %d MiB", made.ID, wording.Count(made.FileCount, "file", "files"), made.TotalSize>>20)
	for i, l := range made.LeftOut {
		if text += ", "; i == 0 {
			text += "without "
		}
		text += l.Name + " (" + l.Reason + ")"
	}
	s.record(kindSnapshot, text)
	if len(made.LeftOut) > 0 {
		s.log.Warn("a snapshot is not whole", "snapshot", made.ID, "left_out", made.LeftOut)
	}
}

// own lists the automatic snapshots, the newest first.
func (s *snapshotter) own() (own []backup.Snapshot, err error) {
	list, err := backup.List(s.home)
	for _, x := range list {
		if x.Label == automatic {
			own = append(own, x)
		}
	}
	return own, err
}

// due says that none was made within the interval. Those from the future do not count: the clock was wrong then or is now.
func (s *snapshotter) due(own []backup.Snapshot, every time.Duration) bool {
	now := s.now()
	for _, x := range own {
		at, err := time.Parse(time.RFC3339, x.Timestamp)
		if err == nil && !at.After(now) && now.Sub(at) < every {
			return false
		}
	}
	return true
}

// roomFor refuses a snapshot that would fill the disk.
func roomFor(home string) error {
	need := int64(snapshotRoom)
	for _, name := range []string{"state.db", "state.db-wal", boardFile} {
		if info, err := os.Stat(filepath.Join(home, name)); err == nil {
			need += info.Size()
		}
	}
	free, err := store.FreeSpace(home)
	if err == nil && free < need {
		return fmt.Errorf("it needs %d MiB to be free, %d are: %w", need>>20, free>>20, store.ErrDiskFull)
	}
	return err
}
