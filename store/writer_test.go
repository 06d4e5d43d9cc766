package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

type execFunc = func(query string, args ...any) error

// hold keeps the writer busy with a request until the returned function is called, so that what is asked meanwhile
// becomes one batch.
func hold(t *testing.T, s *store.State) (release func()) {
	t.Helper()
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Request(context.Background(), func(execFunc) error { close(began); <-end; return nil }); err != nil {
			t.Error(err)
		}
	}()
	<-began
	return func() { close(end); <-done }
}

func put(key string) func(execFunc) error {
	return func(exec execFunc) error {
		return exec("INSERT INTO state_meta(key, value) VALUES(?, '1')", key)
	}
}

func metaKeys(t *testing.T, s *store.State) (n int) {
	t.Helper()
	if err := s.Read(context.Background(), func(_ context.Context, count func(string) (int, error)) (err error) {
		n, err = count("SELECT count(*) FROM state_meta WHERE key NOT LIKE 'fts%'")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOneRequestOfABatchFailsAlone(t *testing.T) {
	oops := errors.New("oops")
	for name, bad := range map[string]func(execFunc) error{
		"error after a write": func(exec execFunc) error {
			return errors.Join(put("half")(exec), oops)
		},
		"constraint": func(exec execFunc) error { return errors.Join(put("half")(exec), put("half")(exec)) },
		"panic": func(exec execFunc) error {
			_ = put("half")(exec)
			panic("a mistake in a request")
		},
		"bad SQL": func(exec execFunc) error { return errors.Join(put("half")(exec), exec("NONSENSE")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.State(t, store.Options{})
			release := hold(t, s)
			const good = 20
			var wg sync.WaitGroup
			errs := make(chan error, good)
			badErr := make(chan error, 1)
			for i := range good {
				if i == good/2 {
					wg.Go(func() { badErr <- s.Request(context.Background(), bad) })
				}
				wg.Go(func() { errs <- s.Request(context.Background(), put(fmt.Sprint(i))) })
			}
			eventually(t, "the queue", func() bool { return s.Queued() == good+1 })
			release()
			wg.Wait()
			close(errs)
			for err := range errs {
				if err != nil {
					t.Errorf("a good request failed: %v", err)
				}
			}
			if err := <-badErr; err == nil {
				t.Error("the bad request did not fail")
			}
			if n := metaKeys(t, s); n != good {
				t.Errorf("%d rows, not %d", n, good)
			}
		})
	}
}

func TestATransactionThatIsThrownAwayIsRunAgainWithoutItsCause(t *testing.T) {
	s := storetest.State(t, store.Options{})
	release := hold(t, s)
	var wg sync.WaitGroup
	runs := make([]int, 3)
	errs := make([]error, 3)
	for i := range runs {
		wg.Go(func() {
			errs[i] = s.Request(context.Background(), func(exec execFunc) error {
				runs[i]++
				if i == 1 { // what SQLite does by itself when the disk fills
					return errors.Join(exec("ROLLBACK"), errors.New("thrown away"))
				}
				return put(fmt.Sprint(i))(exec)
			})
		})
		eventually(t, "the queue", func() bool { return s.Queued() == i+1 })
	}
	release()
	wg.Wait()
	if errs[0] != nil || errs[2] != nil || errs[1] == nil {
		t.Errorf("errors are %v", errs)
	}
	if runs[0] != 2 || runs[1] != 1 || runs[2] != 1 {
		t.Errorf("runs are %v: the first should run twice, the others once", runs)
	}
	if n := metaKeys(t, s); n != 2 {
		t.Errorf("%d rows, not 2", n)
	}
}

func TestARequestWhoseCallerHasGoneIsNotRun(t *testing.T) {
	s := storetest.State(t, store.Options{})
	release := hold(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error)
	go func() { gone <- s.Request(ctx, put("gone")) }()
	eventually(t, "the queue", func() bool { return s.Queued() == 1 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	release()
	if err := s.Request(context.Background(), put("next")); err != nil {
		t.Error("the next request failed: ", err)
	}
	if n := metaKeys(t, s); n != 1 {
		t.Errorf("%d rows, not 1", n)
	}
}

// The query is long, not endless: a cancellation just before the driver steps into SQLite is lost.
func TestACancelledReadHarmsNoOther(t *testing.T) {
	s := storetest.State(t, store.Options{Readers: 1})
	cancelled := 0
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		started := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- s.Read(ctx, func(_ context.Context, count func(string) (int, error)) error {
				close(started)
				_, err := count("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) SELECT max(i) FROM n")
				return err
			})
		}()
		<-started
		cancel()
		if err := <-done; errors.Is(err, context.Canceled) {
			cancelled++
		}
		if _, err := s.Sessions(context.Background(), "", 0); err != nil {
			t.Fatal("the read after it failed: ", err)
		}
	}
	if cancelled == 0 {
		t.Error("no read was cancelled")
	}
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	s := storetest.State(t, store.Options{})
	release := hold(t, s)
	var wg sync.WaitGroup
	errs := make(chan error, store.QueueLength)
	for i := range store.QueueLength {
		wg.Go(func() { errs <- s.Request(context.Background(), put(fmt.Sprint(i))) })
	}
	eventually(t, "a full queue", func() bool { return s.Queued() == store.QueueLength })
	if err := s.Request(context.Background(), put("one more")); !errors.Is(err, store.ErrQueueFull) {
		t.Errorf("error is %v", err)
	}
	release()
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal("a queued request failed: ", err)
		}
	}
	if n := metaKeys(t, s); n != store.QueueLength {
		t.Errorf("%d rows, not %d", n, store.QueueLength)
	}
}

func TestCloseAnswersWhatIsQueuedAndRefusesTheRest(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	release := hold(t, s)
	const n = 300 // more than two batches
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := s.Request(context.Background(), put(fmt.Sprint(i))); err != nil {
				t.Error("a queued request failed: ", err)
			}
		})
	}
	eventually(t, "the queue", func() bool { return s.Queued() == n })
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := s.Request(context.Background(), put("late")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	if _, err := s.Sessions(context.Background(), "", 0); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error("a second Close: ", err)
	}
	if got := storetest.Query(t, path, "SELECT count(*) FROM state_meta WHERE key NOT LIKE 'fts%'"); got[0] != fmt.Sprint(n) {
		t.Errorf("%s rows, not %d", got[0], n)
	}
}

func TestCloseLeavesOneCompleteFile(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Request(context.Background(), put("a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if files := ls(t, path); len(files) != 1 {
		t.Errorf("files are %v, expected the database alone", files)
	}
}

func TestProgressAndPing(t *testing.T) {
	s := storetest.State(t, store.Options{})
	before := s.Progress()
	if err := s.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "progress", func() bool { return s.Progress() > before })
	idle := s.Progress()
	eventually(t, "progress of an idle store", func() bool { return s.Progress() > idle })
	if h := s.Health(); h != (store.Health{Name: "state", State: "ok"}) {
		t.Errorf("health is %+v", h)
	}
}

func TestABatchIsBounded(t *testing.T) {
	s := storetest.State(t, store.Options{})
	release := hold(t, s)
	var wg sync.WaitGroup
	const n = 3*store.BatchLimit + 1
	for i := range n {
		wg.Go(func() {
			if err := s.Request(context.Background(), put(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "the queue", func() bool { return s.Queued() == n })
	release()
	wg.Wait()
	if got := metaKeys(t, s); got != n {
		t.Errorf("%d rows, not %d", got, n)
	}
}

// The time of a transaction is bounded: what a slow request has written is committed before the next one runs.
func TestASlowRequestIsCommittedBeforeTheNext(t *testing.T) {
	s := storetest.State(t, store.Options{})
	release := hold(t, s)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Request(context.Background(), func(exec execFunc) error {
			for start := time.Now(); time.Since(start) < 2*store.BatchTime; {
				if err := exec("UPDATE state_meta SET value = value"); err != nil {
					return err
				}
			}
			return put("slow")(exec)
		}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the queue", func() bool { return s.Queued() == 1 })
	seen := -1
	wg.Go(func() {
		if err := s.Request(context.Background(), func(execFunc) error { seen = metaKeys(t, s); return nil }); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the queue", func() bool { return s.Queued() == 2 })
	release()
	wg.Wait()
	if seen != 1 {
		t.Errorf("the next request ran with %d committed rows of the slow one", seen)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	_, err := store.OpenState(context.Background(), dir, store.Options{})
	if err == nil || !strings.Contains(err.Error(), dir) || !errors.Is(err, store.ErrInvalid) {
		t.Errorf("opening a directory: %v", err)
	}
}
