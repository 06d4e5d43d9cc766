package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// slowBoards returns boards of which one, "slow", opens only when it is let go, and a channel that says that it is being
// opened.
func slowBoards(t *testing.T) (b *boards, opening <-chan struct{}, letGo func()) {
	home := t.TempDir()
	folder := filepath.Join(home, filepath.FromSlash(boardsFolder), "slow")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, boardFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	entered, gate := make(chan struct{}), make(chan struct{})
	b = newBoards(home, store.Options{})
	b.openBoard = func(ctx context.Context, path, slug string, o store.Options) (*store.Board, error) {
		if slug == "slow" {
			close(entered)
			<-gate
		}
		return store.OpenBoard(ctx, path, slug, o)
	}
	return b, entered, func() { close(gate) }
}

// within fails the test if do hangs.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal(what + " hangs")
	}
}

// The status line, and with it what the watchdog sees of the writer, asks for the health of the boards.
func TestABoardThatIsSlowToOpenHoldsNothingElseUp(t *testing.T) {
	b, opening, letGo := slowBoards(t)
	if _, err := b.get(defaultBoard); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() { _, err := b.get("slow"); opened <- err }()
	<-opening
	within(t, "the health of the others", func() {
		if h := b.health(); len(h) != 1 {
			t.Errorf("health is %v", h)
		}
	})
	within(t, "an open board", func() {
		if _, err := b.get(defaultBoard); err != nil {
			t.Error(err)
		}
	})
	letGo()
	if err := <-opened; err != nil || len(b.health()) != 2 {
		t.Errorf("the slow board: %v, health %v", err, b.health())
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
}

func TestABoardThatOpensDuringTheCloseIsClosed(t *testing.T) {
	b, opening, letGo := slowBoards(t)
	opened := make(chan error, 1)
	go func() { _, err := b.get("slow"); opened <- err }()
	<-opening
	closed := make(chan error, 1)
	go func() { closed <- b.close() }()
	for gone := false; !gone; {
		b.mu.Lock()
		gone = b.closed
		b.mu.Unlock()
	}
	letGo()
	if err := <-opened; !errors.Is(err, ipc.ErrGone) {
		t.Errorf("the board that came too late: %v", err)
	}
	if err := <-closed; err != nil || len(b.health()) != 0 {
		t.Errorf("close: %v, still open: %v", err, b.health())
	}
}
