package store

import (
	"errors"
	"os"
	"testing"
)

func TestASecondOwnerOfAHomeIsToldThePIDOfTheFirst(t *testing.T) {
	home := t.TempDir()
	first, err := LockHome(home)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockHome(home)
	var locked *LockedError
	if !errors.As(err, &locked) || !errors.Is(err, ErrLocked) || locked.PID != os.Getpid() {
		t.Fatalf("second lock: %v", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := LockHome(home)
	if err != nil {
		t.Fatalf("after unlock: %v", err)
	}
	_ = again.Unlock()
}
