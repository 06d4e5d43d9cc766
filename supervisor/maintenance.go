package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

const kindSnapshot = "snapshot"

// ownStores are the databases that this supervisor has open, for package maintenance.
type ownStores struct{ s *supervisor }

// Names lists them by their path in the home. The journal is not one: it may be deleted at any time.
func (o ownStores) Names() ([]string, error) {
	slugs, err := o.s.boards.names()
	if err != nil {
		return nil, err
	}
	names := []string{"state.db"}
	for _, slug := range slugs {
		name, err := filepath.Rel(o.s.boards.home, o.s.boards.path(slug))
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.ToSlash(name))
	}
	return names, nil
}

// Copy makes a copy of one of them, or of a database of the home that is none of ours.
func (o ownStores) Copy(ctx context.Context, name, to string) error {
	if name == "state.db" {
		return o.s.store.CopyTo(ctx, to)
	}
	slug, isBoard := boardOf(name)
	if !isBoard {
		return store.CopyFile(ctx, filepath.Join(o.s.boards.home, filepath.FromSlash(name)), to)
	}
	board, err := o.s.boards.get(slug)
	if err != nil {
		return err
	}
	b, ok := board.(*store.Board)
	if !ok {
		return fmt.Errorf("board %s: %w", slug, ipc.ErrRefused)
	}
	return b.CopyTo(ctx, to)
}

// Optimize merges the full-text index of the conversations.
func (o ownStores) Optimize(ctx context.Context) (int64, error) { return o.s.store.Optimize(ctx) }

// boardOf returns the board whose file has that path in the home.
func boardOf(name string) (slug string, ok bool) {
	if name == boardFile {
		return defaultBoard, true
	}
	rest, found := strings.CutPrefix(name, boardsFolder+"/")
	slug, file, _ := strings.Cut(rest, "/")
	return slug, found && file == boardFile && boardSlug.MatchString(slug)
}

// finishRestore goes on with a restore that was killed, before any store is opened, and removes what other commands left
// that were killed. That the latter does not work, on a file system that takes no writes, must not keep anything from
// starting.
func (s *supervisor) finishRestore(home string) error {
	files, err := backup.Resume(home)
	if err != nil {
		return fmt.Errorf("finish a restore that was cut off: %w", err)
	}
	if len(files) > 0 {
		s.log.Warn("a restore that was cut off was finished", "files", len(files))
	}
	if removed, err := backup.Sweep(home); err != nil || len(removed) > 0 {
		s.log.Warn("commands that were killed left something half made", "removed", removed, "error", err)
	}
	return nil
}

const (
	// firstSnapshot is the pause after the start: a supervisor that restarts again and again makes none.
	firstSnapshot = 10 * time.Minute
	// snapshotRoom must be left on the disk after a snapshot, so that it does not cause what it is there for.
	snapshotRoom = 1 << 30
)

// keepSnapshots makes a snapshot of the home in regular intervals until ctx ends. The copies advance between groups of
// requests, so that nobody waits for them.
func (s *supervisor) keepSnapshots(ctx context.Context) {
	every := s.config().Supervisor.SnapshotInterval
	if every <= 0 {
		return
	}
	tick := time.NewTimer(min(firstSnapshot, every))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := s.snapshot(ctx, every); err != nil && ctx.Err() == nil {
			s.record(kindSnapshot, "no snapshot was made: "+err.Error())
			s.log.Warn("no snapshot was made", "error", err)
		}
		tick.Reset(every)
	}
}

// automatic labels the snapshots that are made here and may be removed here.
const automatic = "auto"

func (s *supervisor) snapshot(ctx context.Context, every time.Duration) error {
	home := s.o.Config.Home
	list, err := backup.List(home)
	if err != nil {
		return err
	}
	var own []backup.Snapshot
	for _, x := range list {
		if x.Label == automatic {
			own = append(own, x)
		}
	}
	if len(own) > 0 {
		if at, err := time.Parse(time.RFC3339, own[0].Timestamp); err == nil && s.now().Sub(at) < every*9/10 && !at.After(s.now()) {
			return nil // the last supervisor made it
		}
	}
	if err := roomFor(home); err != nil {
		return err
	}
	made, err := backup.Quick(ctx, home, automatic, s.now(), ownStores{s}.Copy)
	if err != nil {
		return err
	}
	s.record(kindSnapshot, fmt.Sprintf("snapshot %s of %d files, %d MiB", made.ID, made.FileCount, made.TotalSize>>20))
	keep := s.config().Supervisor.SnapshotKeep
	for i := keep - 1; i < len(own); i++ {
		err = errors.Join(err, backup.Remove(home, own[i].ID))
	}
	return err
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
