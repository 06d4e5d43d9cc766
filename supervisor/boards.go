package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/turn"
)

const (
	defaultBoard  = "default"
	boardFile     = "kanban.db"
	boardsFolder  = "kanban/boards" // below the home; one folder a board other than the default
	archiveFolder = "_archived"
)

// boardSlug is Hermes' own rule for names of boards.
var boardSlug = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// boards opens the kanban boards of a home when they are asked for and keeps them open: one writer and a fixed set of
// descriptors a board for the life of the supervisor.
type boards struct {
	home      string
	options   store.Options
	openBoard func(ctx context.Context, path, slug string, o store.Options) (*store.Board, error)

	// opening is held while one is opened, which may wait for a foreign process or copy a large file, so that no file is
	// opened twice. It is taken before mu, which is not held meanwhile: the status line needs it.
	opening sync.Mutex

	mu     sync.Mutex
	open   map[string]*store.Board
	closed bool
}

func newBoards(home string, o store.Options) *boards {
	return &boards{home: home, options: o, openBoard: store.OpenBoard, open: map[string]*store.Board{}}
}

// get returns a board by slug; "" is the default board. A board that does not exist is not made.
func (b *boards) get(slug string) (turn.Board, error) {
	if slug == "" {
		slug = defaultBoard
	}
	if !boardSlug.MatchString(slug) {
		return nil, fmt.Errorf("board %q: %w: 1 to 64 of a-z, 0-9, - and _, beginning with a letter or digit", slug, ipc.ErrInvalid)
	}
	if board, err := b.known(slug); board != nil {
		return board, nil
	} else if err != nil {
		return nil, err
	}
	b.opening.Lock()
	defer b.opening.Unlock()
	if board, err := b.known(slug); board != nil {
		return board, nil // another call has opened it
	} else if err != nil {
		return nil, err
	}
	path := b.path(slug)
	if slug != defaultBoard {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("board %s: %w", slug, ipc.ErrNotFound)
		}
	}
	board, err := b.openBoard(context.Background(), path, slug, b.options)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.Join(goneBoard(slug), board.Close())
	}
	b.open[slug] = board
	return board, nil
}

// known returns a board that is open, nil if it is not.
func (b *boards) known(slug string) (*store.Board, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, goneBoard(slug)
	}
	return b.open[slug], nil
}

func goneBoard(slug string) error { return fmt.Errorf("board %s: %w", slug, ipc.ErrGone) }

func (b *boards) path(slug string) string {
	if slug == defaultBoard {
		return filepath.Join(b.home, boardFile)
	}
	return filepath.Join(b.home, filepath.FromSlash(boardsFolder), slug, boardFile)
}

// names lists the boards that exist now, the default one first, and of others as far as they can be listed.
func (b *boards) names() ([]string, error) {
	list := []string{defaultBoard}
	entries, err := os.ReadDir(filepath.Join(b.home, filepath.FromSlash(boardsFolder)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return list, fmt.Errorf("list boards: %w", err)
	}
	for _, e := range entries {
		slug := e.Name()
		if slug == archiveFolder || slug == defaultBoard || !e.IsDir() || !boardSlug.MatchString(slug) {
			continue
		}
		if _, err := os.Stat(b.path(slug)); err == nil {
			list = append(list, slug)
		}
	}
	return list, nil
}

// health returns the health of the boards that are open, by name.
func (b *boards) health() []store.Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]store.Health, 0, len(b.open))
	for slug, board := range b.open {
		h := board.Health()
		if slug != defaultBoard {
			h.Name += "/" + slug
		}
		list = append(list, h)
	}
	slices.SortFunc(list, func(x, y store.Health) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// close closes all boards. One that is being opened is waited for.
func (b *boards) close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.opening.Lock()
	defer b.opening.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for slug, board := range b.open {
		errs = append(errs, board.Close())
		delete(b.open, slug)
	}
	return errors.Join(errs...)
}
