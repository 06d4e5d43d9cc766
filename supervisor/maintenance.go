package supervisor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// ownStores are the databases that this supervisor has open, for package maintenance.
type ownStores struct{ s *supervisor }

// Names lists them by their path in the home. The journal is not one: it may be deleted at any time.
func (o ownStores) Names() ([]string, error) {
	slugs, listed := o.s.boards.names()
	names := []string{"state.db"}
	for _, slug := range slugs {
		name, err := filepath.Rel(o.s.boards.home, o.s.boards.path(slug))
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.ToSlash(name))
	}
	return names, listed
}

// Copy makes a copy of one of them, or of a database of the home that is none of ours.
func (o ownStores) Copy(ctx context.Context, name, to string) error {
	if name == "state.db" {
		return o.s.store.CopyTo(ctx, to)
	}
	if _, isBoard := boardOf(name); !isBoard {
		return store.CopyFile(ctx, filepath.Join(o.s.boards.home, filepath.FromSlash(name)), to)
	}
	b, err := o.board(name)
	if err != nil {
		return err
	}
	return b.CopyTo(ctx, to)
}

// board returns the board whose file has that path in the home.
func (o ownStores) board(name string) (*store.Board, error) {
	slug, isBoard := boardOf(name)
	if !isBoard {
		return nil, fmt.Errorf("store %q: %w", name, ipc.ErrNotFound)
	}
	board, err := o.s.boards.get(slug)
	if err != nil {
		return nil, err
	}
	b, ok := board.(*store.Board)
	if !ok {
		return nil, fmt.Errorf("board %s: %w", slug, ipc.ErrRefused)
	}
	return b, nil
}

// Mend makes a repair of one of them.
func (o ownStores) Mend(ctx context.Context, name string, r store.Repair) ([]string, error) {
	if name == "state.db" {
		return o.s.store.Mend(ctx, r)
	}
	b, err := o.board(name)
	if err != nil {
		return nil, err
	}
	return b.Mend(ctx, r)
}

// Convert gives the full-text index of the conversations the newest layout.
func (o ownStores) Convert(ctx context.Context, tell func(percent int)) (bool, error) {
	return o.s.store.ConvertIfLegacy(ctx, tell)
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
