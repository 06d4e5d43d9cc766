package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestAHomeKnowsWhenItsSupervisorWasLastHeardOf(t *testing.T) {
	home := t.TempDir()
	lock := func() *store.HomeLock {
		t.Helper()
		l, err := store.LockHome(home)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := lock()
	if !first.Heard().IsZero() {
		t.Errorf("nobody was here before: %v", first.Heard())
	}
	heard := time.Date(2026, 3, 1, 22, 51, 7, 0, time.UTC)
	first.Beat(heard.Add(-time.Minute))
	first.Beat(heard)
	var locked *store.LockedError
	if _, err := store.LockHome(home); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("its owner is not named: %v", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	command := lock() // holds the home for a moment and is no supervisor
	_ = command.Unlock()
	next := lock()
	if !next.Heard().Equal(heard) {
		t.Errorf("heard at %v, want %v", next.Heard(), heard)
	}
	_ = next.Unlock()
	for _, text := range []string{"", "12", "12\n", "x\ny\n", "12\n2026-03-01T", "\n2026-03-01T22:51:07Z\n"} {
		if err := os.WriteFile(filepath.Join(home, store.LockFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := lock()
		if !l.Heard().IsZero() {
			t.Errorf("%q is read as %v", text, l.Heard())
		}
		_ = l.Unlock()
	}
}
