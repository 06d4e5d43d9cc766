package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() { children["die in a migration"] = dieInMigration }

// dieInMigration opens a state and is killed in the migration of that number, before or after its commit.
func dieInMigration(args []string) error {
	store.SetMigrationHook(func(number int, committed bool) {
		if fmt.Sprint(number, committed) == args[1] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	_, err := store.OpenState(context.Background(), args[0], store.Options{})
	return errors.Join(err, errors.New("survived"))
}

func TestAMigrationKilledHalfWayIsMadeAgain(t *testing.T) {
	for _, fixture := range []string{"", "state-schema-v6.db", "state-schema-v8.db", "hermes-home-2026-07/state.db"} {
		for _, at := range []string{"1 false", "1 true", "2 false", "2 true"} {
			t.Run(fmt.Sprintf("%s killed at %s", fixture, at), func(t *testing.T) {
				path, messages := filepath.Join(t.TempDir(), "state.db"), "0"
				if fixture != "" {
					path = storetest.Fixture(t, fixture)
					messages = storetest.Query(t, path, "SELECT count(*) FROM messages")[0]
				}
				c := startChild(t, "die in a migration", path, at)
				if err := c.wait(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatal("the child was to be killed: ", err, c.errs.String())
				}
				s := storetest.StateAt(t, path, store.Options{})
				accept(t, s, "1")
				if got := storetest.Query(t, path, "SELECT count(*) FROM messages"); got[0] != messages {
					t.Errorf("%s messages, not %s", got[0], messages)
				}
			})
		}
	}
}

func TestAFileOfTheFutureIsRefused(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Exec(path, "UPDATE hs_meta SET value = 77 WHERE key = 'migration'"); err != nil {
		t.Fatal(err)
	}
	_, err = store.OpenState(context.Background(), path, store.Options{})
	if !errors.Is(err, store.ErrTooNew) || !strings.Contains(err.Error(), "77") || !strings.Contains(err.Error(), "knows 4") {
		t.Errorf("error is %v", err)
	}
}

func TestOpeningTwiceChangesNothing(t *testing.T) {
	path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
	storetest.StateAt(t, path, store.Options{})
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	schema := storetest.Query(t, path, "SELECT sql FROM sqlite_schema ORDER BY name")
	s, err = store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if again := storetest.Query(t, path, "SELECT sql FROM sqlite_schema ORDER BY name"); strings.Join(again, "\n") != strings.Join(schema, "\n") {
		t.Error("the schema changed at a second open")
	}
}

func TestMigrationWaitsForAForeignWriter(t *testing.T) {
	path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
	holder := startChild(t, "hold the lock", path)
	holder.expect("held")
	opened := make(chan error)
	go func() {
		s, err := store.OpenState(context.Background(), path, store.Options{})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	eventually(t, "the snapshot", func() bool { _, err := os.Stat(path + store.SnapshotSuffix); return err == nil })
	select {
	case err := <-opened:
		t.Fatal("opened while the lock was held: ", err)
	default:
	}
	if err := holder.wait(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}
