package supervisor

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	kanbanv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/kanban/v1"
)

// A boardWatch tells the kanban worker when a board was written, by this process or another one, so that nobody looks for
// events that are not there. It asks the kernel (inotify): nothing turns while nothing is written. It is safe for
// concurrent use.
type boardWatch struct {
	home  string
	every func() time.Duration // the least time between two words
	log   hclog.Logger

	mu     sync.Mutex
	client kanbanv1.KanbanClient // nil while the worker is down
}

// attach notes the connection of the kanban worker; detach notes that it is gone.
func (w *boardWatch) attach(id ipc.Identity, conn grpc.ClientConnInterface) (detach func()) {
	if id.Role != ipc.RoleKanban {
		return func() {}
	}
	client := kanbanv1.NewKanbanClient(conn)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = client
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.client == client {
			w.client = nil
		}
	}
}

// run tells until ctx ends. What was written while nobody listened is found by the first look of the worker.
func (w *boardWatch) run(ctx context.Context) {
	next := func(context.Context) bool { return true } // takes each interval for a change
	if eyes, err := newFileEyes(w.home); err == nil {
		defer eyes.close()
		next = eyes.next
	} else {
		w.log.Warn("the kernel does not tell of changes of the boards; they are looked at again and again", "error", err)
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C: // what is written meanwhile is one change
		}
		if !next(ctx) {
			return
		}
		w.tell(ctx)
		pause.Reset(w.every())
	}
}

// tell makes the worker look. One that is down looks when it is there again.
func (w *boardWatch) tell(ctx context.Context) {
	w.mu.Lock()
	client := w.client
	w.mu.Unlock()
	if client == nil {
		return
	}
	if _, err := client.Tick(ctx, &kanbanv1.TickRequest{}); err != nil && ctx.Err() == nil {
		w.log.Debug("the kanban worker did not look; it tries again by itself", "error", err)
	}
}

// fileEyes see writes to the boards of a home, and boards that are made.
type fileEyes struct {
	home string
	file *os.File // of inotify
	conn syscall.RawConn
	buf  [4 << 10]byte
}

const (
	// A database in WAL mode is written in its -wal, else in its own file. One that is deleted or moved is made again.
	writesOf = unix.IN_MODIFY | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF
	// A board is a file in a folder of its own, which is made before.
	entriesOf = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
)

func newFileEyes(home string) (*fileEyes, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	e := &fileEyes{home: home, file: os.NewFile(uintptr(fd), "inotify")}
	if e.conn, err = e.file.SyscallConn(); err == nil {
		err = e.look()
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *fileEyes) close() { _ = e.file.Close() }

// look adds what is there now. What is watched already stays so.
func (e *fileEyes) look() error {
	boards := filepath.Join(e.home, filepath.FromSlash(boardsFolder))
	folders, _ := filepath.Glob(filepath.Join(boards, "*")) // the pattern is ours
	if err := e.add(e.home, entriesOf); err != nil {
		return err
	}
	err := errors.Join(e.add(filepath.Dir(boards), entriesOf), e.add(boards, entriesOf), e.addBoard(filepath.Join(e.home, boardFile)))
	for _, dir := range folders {
		err = errors.Join(err, e.add(dir, entriesOf), e.addBoard(filepath.Join(dir, boardFile)))
	}
	return err
}

func (e *fileEyes) addBoard(path string) error {
	return errors.Join(e.add(path, writesOf), e.add(path+"-wal", writesOf))
}

// add watches one file or folder. One that is not there is none, and its folder tells when it comes.
func (e *fileEyes) add(path string, mask uint32) error {
	var failed error
	if err := e.conn.Control(func(fd uintptr) { _, failed = unix.InotifyAddWatch(int(fd), path, mask) }); err != nil {
		return err
	}
	if errors.Is(failed, unix.ENOENT) || errors.Is(failed, unix.ENOTDIR) {
		return nil
	}
	if failed != nil {
		return &os.PathError{Op: "watch", Path: path, Err: failed}
	}
	return nil
}

// next waits for a change and takes all that the kernel has to tell, false when ctx has ended.
func (e *fileEyes) next(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() { _ = e.file.SetReadDeadline(time.Unix(1, 0)) })()
	heard, renew := false, false
	err := e.conn.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), e.buf[:])
			if n <= 0 {
				return heard || !errors.Is(err, unix.EAGAIN)
			}
			heard, renew = true, isNew(e.buf[:n]) || renew
		}
	})
	if renew {
		_ = e.look() // what cannot be watched is found by the worker's own look
	}
	return err == nil && ctx.Err() == nil
}

// isNew reads events and says whether there may be something new to watch.
func isNew(events []byte) (renew bool) {
	for len(events) >= unix.SizeofInotifyEvent {
		mask, size := binary.NativeEndian.Uint32(events[4:]), int(binary.NativeEndian.Uint32(events[12:]))
		renew = renew || mask&unix.IN_MODIFY == 0
		events = events[min(unix.SizeofInotifyEvent+size, len(events)):]
	}
	return renew
}
