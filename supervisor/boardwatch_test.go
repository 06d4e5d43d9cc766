package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// looks is a connection to a kanban worker that counts how often it is told to look.
type looks struct{ told chan struct{} }

func (l looks) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	l.told <- struct{}{}
	return nil
}

func (looks) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	panic("not called")
}

// watchBoards runs a watch over a home with the default board. The function waits for the next word.
func watchBoards(t *testing.T, home string) (told func(after string)) {
	t.Helper()
	appendTo(t, filepath.Join(home, boardFile))
	appendTo(t, filepath.Join(home, boardFile+"-wal"))
	w := &boardWatch{home: home, every: func() time.Duration { return time.Millisecond }, log: hclog.NewNullLogger()}
	conn := looks{make(chan struct{})}
	detach := w.attach(ipc.Identity{Worker: "kanban", Role: ipc.RoleKanban}, conn)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	// The watch begins at some moment: write until it hears, then let it become quiet.
	for heard := false; !heard; {
		appendTo(t, filepath.Join(home, boardFile+"-wal"))
		select {
		case <-conn.told:
			heard = true
		case <-time.After(5 * time.Millisecond):
		}
	}
	stopped := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		go func() {
			for {
				select {
				case <-conn.told:
				case <-stopped:
					return
				}
			}
		}()
		running.Wait()
		close(stopped)
		detach()
	})
	return func(after string) {
		t.Helper()
		select {
		case <-conn.told:
		case <-time.After(20 * time.Second):
			t.Fatalf("the worker is not told of %s", after)
		}
	}
}

func appendTo(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

func TestTheKanbanWorkerIsToldWhenABoardIsWritten(t *testing.T) {
	home := t.TempDir()
	told := watchBoards(t, home)
	appendTo(t, filepath.Join(home, boardFile+"-wal"))
	told("a write to the log of the default board")
	appendTo(t, filepath.Join(home, boardFile))
	told("a write to the default board itself, as without a log")
}

func TestABoardThatIsMadeByAnotherProgramIsSeen(t *testing.T) {
	home := t.TempDir()
	told := watchBoards(t, home)
	dir := filepath.Join(home, filepath.FromSlash(boardsFolder), "garden")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	told("a new folder of a board")
	appendTo(t, filepath.Join(dir, boardFile))
	told("a new board")
	appendTo(t, filepath.Join(dir, boardFile))
	told("a write to the new board")
}

func TestABoardThatIsReplacedIsSeenFurther(t *testing.T) {
	home := t.TempDir()
	told := watchBoards(t, home)
	path := filepath.Join(home, boardFile)
	for range 3 {
		appendTo(t, path+".new")
		told("a new file in the home")
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		told("a board that was replaced")
	}
	appendTo(t, path)
	told("a write to a board that was replaced")
}

func TestAWatchOnlyKnowsTheKanbanWorkerOfThisMoment(t *testing.T) {
	w := &boardWatch{}
	w.attach(ipc.Identity{Worker: "tools", Role: ipc.RoleTools}, looks{})()
	if w.client != nil {
		t.Error("another worker is told")
	}
	old := w.attach(ipc.Identity{Worker: "kanban", Role: ipc.RoleKanban}, looks{})
	now := w.attach(ipc.Identity{Worker: "kanban", Role: ipc.RoleKanban}, looks{})
	old()
	if w.client == nil {
		t.Error("the end of the old process takes the new one out")
	}
	now()
	if w.client != nil {
		t.Error("a process that is gone is told")
	}
	w.tell(context.Background()) // nobody is there, which is no fault
}
