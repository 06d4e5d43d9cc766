package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// What users of other systems reported of their stores, where no other test here shows it.

// A file that cannot be repaired is not copied at each start until the disk is full.
func TestAFileThatStaysDamagedIsNotCopiedAtEachStart(t *testing.T) {
	for name, harm := range map[string]func(b []byte) []byte{
		"damaged pages": func(b []byte) []byte { clear(b[pageOf(b, "message 300 "):][:4096]); return b },
		"no database":   func([]byte) []byte { return []byte("Dear diary") },
		"zeros":         func(b []byte) []byte { clear(b); return b },
	} {
		t.Run(name, func(t *testing.T) {
			path := manyRows(t, 400)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.WriteFile(path, harm(b), 0o600), os.WriteFile(path+"-wal", []byte("of a killed process"), 0o600)); err != nil {
				t.Fatal(err)
			}
			var first []string
			for i := range 10 {
				_ = openStateWith(t, path, store.Options{Readers: 1}).Close()
				names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					first = names
				}
				if !slices.Equal(names, first) {
					t.Fatalf("start %d left %v, the first %v", i, names, first)
				}
			}
		})
	}
}

func init() { children["commit beside a store"] = commitBeside }

// besideCommits is how many rows each of two processes commits; STORE_COMMITS sets it.
func besideCommits() (n int) {
	n = 150
	_, _ = fmt.Sscan(os.Getenv("STORE_COMMITS"), &n)
	return n
}

// commitBeside commits row by row, as another program does that opens the file each time.
func commitBeside(args []string) error {
	for i := range besideCommits() {
		if _, err := storetest.Exec(args[0], "INSERT INTO state_meta(key, value) VALUES(?, 'beside')", fmt.Sprint("beside", i)); err != nil {
			return err
		}
	}
	return nil
}

// Health checks, copies, looks at the files and reads in this process do not cost a lock that keeps two processes apart.
func TestTwoProcessesCommitWhileTheFileIsCheckedAndCopied(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := storetest.StateAt(t, path, store.Options{})
	other := startChild(t, "commit beside a store", path)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if x, err := store.Inspect(ctx, path); err != nil || len(x.Damage) > 0 {
				t.Errorf("inspection: %+v, %v", x, err)
			}
			to := filepath.Join(dir, fmt.Sprint("copy", i%2))
			_ = os.Remove(to)
			if err := []func() error{
				func() error { return s.CopyTo(ctx, to) }, func() error { return store.CopyFile(ctx, path, to) },
			}[i%2](); err != nil && !errors.Is(err, store.ErrBusy) {
				t.Error(err)
			}
			if _, err := os.ReadFile(path); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range besideCommits() {
		if err := try(s, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.wait(); err != nil {
		t.Error(err, other.errs.String())
	}
	close(stop)
	wg.Wait()
	for query, want := range map[string]int{
		"SELECT count(*) FROM hs_inbox": besideCommits(), "SELECT count(*) FROM state_meta WHERE value = 'beside'": besideCommits(),
	} {
		if got := storetest.Query(t, path, query); got[0] != fmt.Sprint(want) {
			t.Errorf("%s: %s, not %d", query, got[0], want)
		}
	}
}

// A log that grew under a reader of another program is small again on the disk soon after that one has gone.
func TestTheLogIsSmallAgainAfterAReaderThatHeldIt(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 80 MiB")
	}
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	accept(t, s, "1")
	reader := startChild(t, "hold a read", path)
	reader.expect("held")
	put100(t, s, 200)
	size := func() int64 {
		st, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	if size() < 70<<20 {
		t.Fatalf("the log has %d MiB: the reader holds nothing", size()>>20)
	}
	if err := reader.wait(); err != nil {
		t.Fatal(err, reader.errs.String())
	}
	eventually(t, "a small log", func() bool {
		put100(t, s, 1)
		return size() <= 64<<20
	})
}
