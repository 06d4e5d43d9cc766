package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// snapshotRig is a home with one store, whose snapshots are made by the clock of the bubble.
type snapshotRig struct {
	*snapshotter

	mu      sync.Mutex
	every   time.Duration
	keep    int
	full    error         // why there is no room
	damaged error         // why the store cannot be copied
	slept   time.Duration // of the machine, in which timers stood still
	events  []string
}

func newSnapshotRig(t *testing.T, every time.Duration, keep int) *snapshotRig {
	r := &snapshotRig{every: every, keep: keep}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "state.db"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.snapshotter = &snapshotter{home: home, log: hclog.NewNullLogger(), record: func(_, message string) {
		r.set(func() { r.events = append(r.events, message) })
	}}
	r.now = func() (now time.Time) { r.set(func() { now = time.Now().Add(r.slept) }); return now }
	r.settings = func() (every time.Duration, keep int) {
		r.set(func() { every, keep = r.every, r.keep })
		return every, keep
	}
	r.room = func() (err error) { r.set(func() { err = r.full }); return err }
	r.copyDB = func(_ context.Context, _, to string) (err error) {
		if r.set(func() { err = r.damaged }); err != nil {
			return err
		}
		return os.WriteFile(to, []byte("copy"), 0o600)
	}
	return r
}

// set changes or reads what the loop reads too.
func (r *snapshotRig) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// told is what is in the journal.
func (r *snapshotRig) told() (list []string) {
	r.set(func() { list = slices.Clone(r.events) })
	return list
}

// start runs the rig until the test of the bubble ends.
func (r *snapshotRig) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func (r *snapshotRig) after(d time.Duration) []backup.Snapshot {
	time.Sleep(d)
	synctest.Wait()
	list, _ := r.own()
	return list
}

func TestASnapshotIsMadeOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSnapshotRig(t, 24*time.Hour, 7)
		r.start(t)
		if list := r.after(9 * time.Minute); len(list) != 0 {
			t.Errorf("a supervisor that has just started made %d", len(list))
		}
		begin := time.Now()
		for day := 1; day <= 10; day++ {
			list := r.after(24 * time.Hour)
			if len(list) != min(day, 7) {
				t.Fatalf("%d snapshots on day %d", len(list), day)
			}
		}
		list := r.after(0)
		if newest, err := time.Parse(time.RFC3339, list[0].Timestamp); err != nil || newest.Sub(begin) > 9*24*time.Hour+time.Hour {
			t.Errorf("after ten days the newest is of %v, begun at %v: an interval became longer than a day", newest, begin)
		}
		if told := r.told(); len(told) != 10 {
			t.Errorf("journal has %q", told)
		}
	})
}

// What the last supervisor made counts: one that is restarted every hour does not make one an hour, and not none either.
func TestRestartsNeitherMultiplyNorPreventSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSnapshotRig(t, 24*time.Hour, 7)
		for range 49 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); r.run(ctx) }()
			time.Sleep(time.Hour)
			cancel()
			<-done
		}
		if list := r.after(0); len(list) != 3 {
			t.Errorf("%d snapshots in 49 hours", len(list))
		}
	})
}

// The wall clock counts, not the time that the process ran: a laptop sleeps.
func TestASnapshotIsDueByTheClockOnTheWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSnapshotRig(t, 24*time.Hour, 7)
		r.start(t)
		r.after(time.Hour)
		r.set(func() { r.slept = 30 * time.Hour })
		if list := r.after(snapshotLook); len(list) != 2 {
			t.Errorf("%d snapshots after a sleep of 30 hours", len(list))
		}
		r.set(func() { r.slept = -100 * time.Hour })
		if list := r.after(5 * time.Hour); len(list) != 3 {
			t.Errorf("%d snapshots in the hours after the clock was set back", len(list))
		}
	})
}

func TestAFailedSnapshotIsToldOnceAnHourAndMadeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSnapshotRig(t, 24*time.Hour, 7)
		r.full = fmt.Errorf("no room: %w", store.ErrDiskFull)
		r.start(t)
		list := r.after(5 * time.Hour)
		if told := r.told(); len(list) != 0 || len(told) > 6 || len(told) < 4 || !strings.Contains(told[0], "disk is full") {
			t.Errorf("%d snapshots, journal has %q", len(list), told)
		}
		r.set(func() { r.full = nil })
		if list := r.after(time.Hour); len(list) != 1 {
			t.Errorf("%d snapshots when there is room again", len(list))
		}
	})
}

func TestSnapshotsThatMissAStoreAreBoundedAndPushOutNoWholeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSnapshotRig(t, 24*time.Hour, 7)
		r.start(t)
		sound := len(r.after(3 * 24 * time.Hour))
		r.set(func() { r.damaged = errors.New("malformed") })
		whole, partial := 0, 0
		for _, s := range r.after(30 * 24 * time.Hour) {
			if len(s.FailedDBs) > 0 {
				partial++
			} else {
				whole++
			}
		}
		if sound == 0 || whole != sound || partial != 7 {
			t.Errorf("after a month with a damaged store there are %d whole snapshots of %d and %d others", whole, sound, partial)
		}
	})
}

// A file that cannot be read does not cost the day's copy of the conversations, and is told.
func TestASnapshotThatMissesAFileIsMadeAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSnapshotRig(t, 24*time.Hour, 7)
		if err := os.Symlink(".env", filepath.Join(r.home, ".env")); err != nil {
			t.Fatal(err)
		}
		r.start(t)
		list := r.after(time.Hour)
		if told := r.told(); len(list) != 1 || list[0].FileCount != 1 || len(told) != 1 || !strings.HasPrefix(told[0], "snapshot ") ||
			!strings.HasSuffix(told[0], ", without .env (too many levels of symbolic links)") {
			t.Errorf("made %+v, told %q", list, told)
		}
		r.set(func() { r.damaged = errors.New("malformed") })
		r.after(24 * time.Hour)
		if told := r.told(); len(told) != 3 || !strings.Contains(told[1], "without .env") || !strings.HasSuffix(told[2], " is made without state.db: malformed") {
			t.Errorf("told %q", told)
		}
	})
}

func TestTheIntervalMayChangeAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSnapshotRig(t, 0, 2)
		r.start(t)
		if list := r.after(48 * time.Hour); len(list) != 0 {
			t.Errorf("%d snapshots although none are wanted", len(list))
		}
		r.set(func() { r.every = time.Hour })
		if list := r.after(4 * time.Hour); len(list) != 2 {
			t.Errorf("%d snapshots of the two that stay", len(list))
		}
		r.set(func() { r.damaged = errors.New("damaged") })
		before := len(r.told())
		if r.after(2 * time.Hour); len(r.told()) == before {
			t.Error("nobody is told of a store that cannot be copied")
		}
	})
}
