package supervisor

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/control"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

// freezeEnv makes this test binary a whole supervisor of the home that it names, as `run` does, in which a part can be made
// to stand still. The tests on a real systemd (e2e) start it as a service.
const freezeEnv = "TEST_FREEZE"

// A freezer makes the part stand still that the file "freeze" in the home names, from then on and for ever.
type freezer struct {
	file string
	part atomic.Value // string

	mu    sync.Mutex
	conns []net.Conn // of the control socket
}

func superviseFreezable(home string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := config.Prepare(home); err != nil {
		return err
	}
	c, err := config.Load(home)
	if err != nil {
		return err
	}
	c.Resolve(ctx)
	runDir, err := config.RunDirIn("", home)
	if err != nil {
		return err
	}
	listener, err := control.Listen(config.SocketPath(runDir))
	if err != nil {
		return err
	}
	f := &freezer{file: filepath.Join(home, "freeze")}
	f.part.Store("")
	go f.wait()
	s := &supervisor{
		o: Options{Config: c, RunDir: runDir, Version: ipc.Version(), Stderr: os.Stderr, Journal: systemd.StderrIsJournal(), Listener: frozenListener{listener, f}},
		// The loop of the queue is the one that asks for the time from there.
		now:     func() time.Time { f.at("turn queue", "turn.(*Hub).ready"); return time.Now() },
		secrets: &redaction{}, started: time.Now(), shutdown: make(chan struct{}), lines: make(chan string, 1), served: func() {},
		openFiles: ownLimit,
	}
	s.state.Store(stateStarting)
	s.current.Store(c)
	defer s.close()
	if err := s.open(ctx); err != nil {
		return err
	}
	f.slowStart()
	s.sampler.After(func(time.Time) { f.at("sampler", "") })
	return s.supervise(ctx)
}

// slowStart makes a start long, if the file says so: with work, or by waiting for what never comes.
func (f *freezer) slowStart() {
	text, _ := os.ReadFile(f.file)
	switch strings.TrimSpace(string(text)) {
	case "long start":
		for end := time.Now().Add(12 * time.Second); time.Now().Before(end); {
		}
	case "start":
		select {}
	}
}

// wait looks for the file.
func (f *freezer) wait() {
	for range time.Tick(50 * time.Millisecond) {
		text, err := os.ReadFile(f.file)
		if err != nil || len(text) == 0 || strings.HasSuffix(string(text), "start") {
			continue
		}
		_ = os.Remove(f.file) // the next supervisor of the home is well
		f.part.Store(strings.TrimSpace(string(text)))
		if f.part.Load() == "control socket" {
			f.mu.Lock()
			for _, c := range f.conns {
				_ = c.Close()
			}
			f.mu.Unlock()
		}
		return
	}
}

// at stands still if the part is to and, unless caller is empty, if one of the callers has that name.
func (f *freezer) at(part, caller string) {
	if f.part.Load() != part {
		return
	}
	if caller != "" {
		pcs := make([]uintptr, 16)
		frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
		for {
			frame, more := frames.Next()
			if strings.HasSuffix(frame.Function, caller) {
				break
			}
			if !more {
				return
			}
		}
	}
	select {}
}

// A frozenListener accepts, and lets nobody know, once the control socket is to stand still.
type frozenListener struct {
	net.Listener
	f *freezer
}

func (l frozenListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.f.at("control socket", "")
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.f.conns = append(l.f.conns, c)
	return c, nil
}

// frozenMain is the main of such a supervisor.
func frozenMain(home string) int {
	if err := superviseFreezable(home); err != nil && !errors.Is(err, context.Canceled) {
		println(err.Error())
		return 1
	}
	return 0
}
