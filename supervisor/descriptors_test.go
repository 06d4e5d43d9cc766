package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

func TestATooLowLimitOfOpenFilesIsRefusedWithWhatToDo(t *testing.T) {
	for _, c := range []struct {
		limit   int64
		workers int
		ok      bool
	}{
		{64, 5, false}, {139, 5, false}, {140, 5, true}, {1024, 5, true}, {1024, 100, false}, {sample.Unlimited, 100, true},
	} {
		err := enoughDescriptors(c.limit, c.workers)
		if (err == nil) != c.ok {
			t.Errorf("limit %d for %d workers: %v", c.limit, c.workers, err)
		}
		if err != nil && (!errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "ulimit -n")) {
			t.Errorf("limit %d: %v", c.limit, err)
		}
	}
	if limit, err := ownLimit(); err != nil || limit == 0 {
		t.Errorf("own limit %d, %v", limit, err)
	}
}

// A reload is held to what a start is, unless it asks for no more than there is.
func TestAReloadForWhichThereAreTooFewDescriptorsIsRefused(t *testing.T) {
	libexec := t.TempDir()
	for _, role := range []string{ipc.RoleTools, ipc.RoleAgent, ipc.RoleKanban} {
		if err := os.WriteFile(filepath.Join(libexec, "hermes-"+role), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	with := func(agents int) *config.Config {
		return &config.Config{Supervisor: config.Supervisor{AgentInstances: agents, Libexec: libexec}}
	}
	for name, c := range map[string]struct {
		limit         int64
		before, after int
		refused       bool
	}{
		"they fit":                     {140, 1, 3, false},
		"one too many":                 {140, 1, 4, true},
		"fewer, though too many still": {100, 9, 8, false},
		"as many":                      {100, 9, 9, false},
		"any number":                   {sample.Unlimited, 1, 50, false},
	} {
		s := &supervisor{
			o:         Options{Load: func(context.Context) (*config.Config, error) { return with(c.after), nil }},
			openFiles: func() (int64, error) { return c.limit, nil }, plugins: &pluginHost{},
		}
		s.current.Store(with(c.before))
		_, list, err := s.read(t.Context())
		if c.refused != errors.Is(err, config.ErrInvalid) || c.refused == (err == nil) || err != nil && !strings.Contains(err.Error(), "is 140, at least 152 are needed") {
			t.Errorf("%s: %d workers, %v", name, len(list), err)
		}
	}
}

func TestOnlyDescriptorsThatNobodyNeedsAreSpentToSpareWork(t *testing.T) {
	for _, c := range []struct {
		limit   int64
		workers int
		want    int
	}{
		{140, 5, 0}, {139, 5, 0}, {200, 5, 30}, {1024, 5, 442}, {sample.Unlimited, 100, sample.KinDescriptors},
	} {
		if got := spareDescriptors(c.limit, c.workers); got != c.want {
			t.Errorf("limit %d for %d workers: %d, want %d", c.limit, c.workers, got, c.want)
		}
	}
}

// What is added while the supervisor runs, by a reload or as a plugin, finds the descriptors that it needs.
func TestWorkersThatJoinGetTheDescriptorsThatWereSpentToSpareWork(t *testing.T) {
	book, spent := logs.NewBook(logs.Options{}), -1
	defer book.Close()
	f := newFleet(fleetParts{
		make: func(s worker.Spec) *worker.Worker {
			return worker.New(s, worker.Hooks{}, worker.Env{Log: book})
		},
		joined: leaveRoom(200, 5, func(n int) { spent = n }),
	})
	for n, want := range []int{30, 30, 30, 30, 30, 24, 18, 12, 6, 0, 0} {
		if err := f.add(worker.Spec{Name: fmt.Sprint("worker-", n)}); err != nil {
			t.Fatal(err)
		}
		if spent != want {
			t.Errorf("with %d workers %d are spent, want %d", n+1, spent, want)
		}
	}
}
