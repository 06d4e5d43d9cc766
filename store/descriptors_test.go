package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() { children["work without free descriptors"] = workWithoutDescriptors }

// workWithoutDescriptors uses a store, with many requests at once, when the process cannot open one more file. WALs are
// kept short, so that it is copied and begun anew meanwhile.
func workWithoutDescriptors(args []string) error {
	ctx := context.Background()
	store.SetWALFrames(50, 100, 1000)
	if args[1] == "remote" {
		store.PretendFileSystem(nfs, false)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 128, Max: 128}); err != nil {
		return err
	}
	s, err := store.OpenState(ctx, args[0], store.Options{})
	if err != nil {
		return err
	}
	var taken []*os.File
	for {
		f, err := os.Open("/dev/null")
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			return err
		}
		taken = append(taken, f)
	}
	errs := make(chan error, 8)
	for g := range 8 {
		go func() { errs <- converse(ctx, s, fmt.Sprint(g), 50) }()
	}
	for range 8 {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return err
	}
	if h := s.Health(); h.State != "ok" && h.Condition != store.CondNoWAL {
		return fmt.Errorf("health is %+v", h)
	}
	for _, f := range taken {
		_ = f.Close()
	}
	return s.Close()
}

// converse accepts messages of a chat and reads their turns.
func converse(ctx context.Context, s *store.State, chat string, n int) error {
	for i := range n {
		a, err := s.Accept(ctx, store.Inbound{Platform: "test", ChatID: chat, MessageID: fmt.Sprint(i), Text: strings.Repeat("text ", 500)})
		if err == nil {
			_, err = s.Turn(ctx, a.TurnID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAProcessWithoutFreeDescriptorsGoesOnWriting(t *testing.T) {
	for _, place := range []string{"local", "remote"} {
		t.Run(place, func(t *testing.T) {
			path := t.TempDir() + "/state.db"
			c := startChild(t, "work without free descriptors", path, place)
			if err := c.wait(); err != nil {
				t.Fatal(err, c.errs.String())
			}
			storetest.Integrity(t, path)
			if got := storetest.Query(t, path, "SELECT count(*) FROM hs_inbox"); got[0] != "400" {
				t.Errorf("%s messages, not 400", got[0])
			}
			if got := storetest.Query(t, path, "SELECT coalesce(max(value), 0) > 0 FROM hs_meta WHERE key = 'wal_restarts'"); place == "local" && got[0] != "1" {
				t.Error("the WAL was never begun anew")
			}
		})
	}
}

func TestDescriptorsAreConstant(t *testing.T) {
	before := storetest.Descriptors(t)
	path := t.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{Readers: 4})
	if err != nil {
		t.Fatal(err)
	}
	open := storetest.Descriptors(t)
	if n := open - before; n > 2*4+6 {
		t.Errorf("a store with 4 readers has %d descriptors", n)
	}
	a := accept(t, s, "first")
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 1000 / 16 {
				if _, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: fmt.Sprint(g, i)}); err != nil {
					t.Error(err)
				}
				if _, err := s.Turn(context.Background(), a.TurnID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 100 {
		if n := storetest.Descriptors(t); n != open {
			t.Fatalf("%d descriptors under load, %d before", n, open)
		}
	}
	wg.Wait()
	if n := storetest.Descriptors(t); n != open {
		t.Errorf("%d descriptors afterwards, %d before", n, open)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Descriptors(t); n != before {
		t.Errorf("%d descriptors after Close, %d before Open", n, before)
	}
}

func TestFailedOpensLeaveNoDescriptors(t *testing.T) {
	path := storetest.Fixture(t, "state-schema-v8.db")
	if _, err := storetest.Exec(path, "CREATE TABLE hs_meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID"); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Exec(path, "INSERT INTO hs_meta(key, value) VALUES('migration', 1000)"); err != nil {
		t.Fatal(err)
	}
	before := storetest.Descriptors(t)
	for range 100 {
		if _, err := store.OpenState(context.Background(), path, store.Options{}); err == nil {
			t.Fatal("opened a file of the future")
		}
	}
	if n := storetest.Descriptors(t); n != before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	dir := t.TempDir() + "/home"
	path := dir + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	accept(t, s, "1")
	if m := mode(t, dir); m != 0o700 {
		t.Errorf("directory has mode %o", m)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if m := mode(t, path+suffix); m != 0o600 {
			t.Errorf("state.db%s has mode %o", suffix, m)
		}
	}
}
