package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func journal(t *testing.T, path string) *store.Telemetry {
	t.Helper()
	j, err := store.OpenTelemetry(context.Background(), path, store.Options{Now: storetest.NewClock().Now, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func note(t *testing.T, j *store.Telemetry, e store.Event) int64 {
	t.Helper()
	id, err := j.Append(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTheJournalKeepsWhatHappened(t *testing.T) {
	ctx := context.Background()
	j := journal(t, t.TempDir()+"/supervisor.db")
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	want := []store.Event{
		{Time: at, Kind: "started", Worker: "agent-1", PID: 7, Message: "up"},
		{Time: at.Add(time.Minute), Kind: "died", Worker: "agent-1", PID: 7, TurnID: "u", Fields: map[string]string{"signal": "9"}},
		{Time: at.Add(time.Hour), Kind: "started", Worker: "tools", PID: 8},
	}
	for i := range want {
		want[i].ID = note(t, j, want[i])
	}
	for name, c := range map[string]struct {
		filter store.EventFilter
		want   []store.Event
	}{
		"all":        {store.EventFilter{}, want},
		"worker":     {store.EventFilter{Worker: "agent-1"}, want[:2]},
		"since":      {store.EventFilter{Since: at.Add(time.Second)}, want[1:]},
		"after":      {store.EventFilter{AfterID: want[1].ID}, want[2:]},
		"before":     {store.EventFilter{BeforeID: want[2].ID, Limit: 1}, want[1:2]},
		"kinds":      {store.EventFilter{Kinds: []string{"started", "other"}}, []store.Event{want[0], want[2]}},
		"the newest": {store.EventFilter{Limit: 2}, want[1:]},
		"a page":     {store.EventFilter{AfterID: want[0].ID, Limit: 1}, want[1:2]},
		"nothing":    {store.EventFilter{Worker: "nobody"}, nil},
	} {
		got, err := j.Events(ctx, c.filter)
		for i := range got {
			got[i].Time = got[i].Time.UTC()
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v\nnot\n%+v", name, got, err, c.want)
		}
	}
	if h := j.Health(); h != (store.Health{Name: "supervisor", State: "ok"}) {
		t.Errorf("health is %+v", h)
	}
	if err := j.Ping(ctx); err != nil || j.Progress() == 0 {
		t.Errorf("ping: %v", err)
	}
}

func TestAnEntryWithoutATimeGetsTheClocks(t *testing.T) {
	j := journal(t, t.TempDir()+"/supervisor.db")
	note(t, j, store.Event{Kind: "x"})
	got, err := j.Events(context.Background(), store.EventFilter{})
	if err != nil || len(got) != 1 || got[0].Time.Year() != 2026 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTheJournalMayBeDeleted(t *testing.T) {
	ctx := context.Background()
	path := t.TempDir() + "/supervisor.db"
	before := storetest.Descriptors(t)
	j := journal(t, path)
	open := storetest.Descriptors(t)
	for i := range 3 {
		note(t, j, store.Event{Kind: fmt.Sprint(i)})
		for _, f := range ls(t, path) {
			if err := os.Remove(path[:len(path)-len("supervisor.db")] + f); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := j.Append(ctx, store.Event{Kind: "into the void"}); !errors.Is(err, store.ErrFailed) {
			t.Errorf("an entry of a deleted file: %v", err)
		}
		note(t, j, store.Event{Kind: "begun anew"})
		got, err := j.Events(ctx, store.EventFilter{})
		if err != nil || len(got) != 1 || got[0].Kind != "begun anew" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if n := storetest.Descriptors(t); n != open {
		t.Errorf("%d descriptors, %d when it was opened first, %d before", n, open, before)
	}
}

func TestADamagedJournalIsBegunAnew(t *testing.T) {
	path := t.TempDir() + "/supervisor.db"
	if err := os.WriteFile(path, slices.Repeat([]byte("not a database. "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	j := journal(t, path)
	note(t, j, store.Event{Kind: "x"})
}

func TestTheJournalForgetsTheOldest(t *testing.T) {
	path := t.TempDir() + "/supervisor.db"
	j := journal(t, path)
	note(t, j, store.Event{Kind: "oldest"})
	if _, err := storetest.Exec(path, "INSERT INTO events(id, time, kind) VALUES(?, 1, 'x')", store.JournalLength+999); err != nil {
		t.Fatal(err)
	}
	note(t, j, store.Event{Kind: "newest"})
	got, err := j.Events(context.Background(), store.EventFilter{})
	if err != nil || len(got) != 2 || got[1].Kind != "newest" {
		t.Errorf("%+v, %v", got, err)
	}
}
