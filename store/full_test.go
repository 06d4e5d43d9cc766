package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// smallDisk mounts a file system of that size.
func smallDisk(t *testing.T, megabytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Skip("a small file system cannot be mounted here (root is needed): ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAFullDiskRefusesWritesUntilThereIsRoom(t *testing.T) {
	dir := smallDisk(t, 8)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(i int) error {
		_, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: fmt.Sprint(i), Text: strings.Repeat("much to say. ", 800)})
		return err
	}
	accepted := 0
	for ; err == nil; accepted++ {
		err = put(accepted)
	}
	accepted--
	if !errors.Is(err, store.ErrDiskFull) {
		t.Fatal("the disk is full: ", err)
	}
	for range 20 {
		if err := put(accepted); !errors.Is(err, store.ErrDiskFull) {
			t.Fatal("the disk is still full: ", err)
		}
	}
	eventually(t, "a beat", func() bool { return s.Health().Condition == store.CondFull })
	beats := s.Progress()
	eventually(t, "more beats", func() bool { return s.Progress() > beats+2 }) // which look at the space, too
	if h := s.Health(); h.State != "degraded" || h.Condition != store.CondFull || !strings.HasPrefix(h.Detail, "writes are refused: disk is full") {
		t.Errorf("health is %+v", h)
	}
	if open, err := s.Open(context.Background()); err != nil || len(open) != accepted {
		t.Errorf("%d turns are read, %d were accepted: %v", len(open), accepted, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := put(accepted + i); err != nil {
			t.Fatal("there is room again: ", err)
		}
	}
	if h := s.Health(); strings.Contains(h.Detail, "is full") {
		t.Errorf("health is %+v", h)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	storetest.Integrity(t, path)
	if got := storetest.Query(t, path, "SELECT count(*) FROM hs_inbox"); got[0] != fmt.Sprint(accepted+100) {
		t.Errorf("%s messages, %d were accepted", got[0], accepted+100)
	}
}

func init() { children["write to a limited file"] = writeToLimitedFile }

// writeToLimitedFile accepts messages while this process may make no file longer than 3 MiB, which is how a quota
// looks to a program, and tells what it was answered.
func writeToLimitedFile(args []string) error {
	ctx := context.Background()
	s, err := store.OpenState(ctx, args[0], store.Options{})
	if err != nil {
		return err
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	limit := func(most uint64) error {
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: was.Max})
	}
	put := func(i int) error {
		_, err := s.Accept(ctx, store.Inbound{Platform: "test", ChatID: "1", MessageID: fmt.Sprint(i), Text: strings.Repeat("much to say. ", 800)})
		return err
	}
	if err := limit(3 << 20); err != nil {
		return err
	}
	accepted := 0
	for err == nil && accepted < 10_000 {
		if err = put(accepted); err == nil {
			accepted++
		}
	}
	h := s.Health()
	fmt.Println("full:", errors.Is(err, store.ErrDiskFull), h.State, h.Condition)
	open, err := s.Open(ctx)
	fmt.Println("reads go on:", err, len(open) == accepted, accepted > 0)
	if err := limit(was.Cur); err != nil {
		return err
	}
	err = put(accepted)
	fmt.Println("writes go on:", err == nil && s.Health().Condition != store.CondFull)
	fmt.Println(accepted + 1)
	return s.Close()
}

func TestAQuotaRefusesWritesUntilThereIsRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	c := startChild(t, "write to a limited file", path)
	c.expect("full: true degraded disk_full")
	c.expect("reads go on: <nil> true true")
	c.expect("writes go on: true")
	accepted := c.line()
	if err := c.wait(); err != nil {
		t.Fatal(err, c.errs.String())
	}
	storetest.Integrity(t, path)
	if got := storetest.Query(t, path, "SELECT count(*) FROM hs_inbox"); got[0] != accepted {
		t.Errorf("%s messages, %s were accepted", got[0], accepted)
	}
}
