package store_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// board is a new board and the path of its file.
func board(t *testing.T) (*store.Board, string) {
	t.Helper()
	path := t.TempDir() + "/kanban.db"
	return storetest.BoardAt(t, path, "ops", store.Options{Now: storetest.NewClock().Now}), path
}

func create(t *testing.T, b *store.Board, n store.NewTask) store.Task {
	t.Helper()
	k, created, err := b.CreateTask(context.Background(), n)
	if err != nil || !created {
		t.Fatal(k, created, err)
	}
	return k
}

func set(t *testing.T, b *store.Board, id, status, summary string) store.Task {
	t.Helper()
	k, err := b.SetStatus(context.Background(), id, status, summary)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func events(t *testing.T, path, task string) []string {
	t.Helper()
	return storetest.Query(t, path, "SELECT kind, payload FROM task_events WHERE task_id = ? ORDER BY id", task)
}

func TestATaskIsCreatedAsHermesCreatesIt(t *testing.T) {
	b, path := board(t)
	k := create(t, b, store.NewTask{Title: "  Water <the> plants ", Body: "All.", Assignee: " Ops ", CreatedBy: "user", SessionID: "s", Priority: 3})
	if !regexp.MustCompile("^t_[0-9a-f]{8}$").MatchString(k.ID) {
		t.Errorf("id is %q", k.ID)
	}
	want := store.Task{ID: k.ID, Board: "ops", Title: "Water <the> plants", Body: "All.", Assignee: "ops", Status: "ready", CreatedBy: "user", Priority: 3, CreatedAt: k.CreatedAt}
	if got, err := b.Task(context.Background(), k.ID); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || k.CreatedAt == 0 {
		t.Errorf("%+v, %v\nnot\n%+v", got, err, want)
	}
	if got := events(t, path, k.ID); !slices.Equal(got, []string{`created|{"assignee":"ops","branch_name":null,"goal_mode":null,"parents":[],"skills":null,"status":"ready","tenant":null}`}) {
		t.Errorf("events are %v", got)
	}
	if got := storetest.Query(t, path, "SELECT workspace_kind, session_id, typeof(created_at), coalesce(tenant, 'none') FROM tasks"); got[0] != "scratch|s|integer|none" {
		t.Errorf("row is %v", got)
	}
	if _, _, err := b.CreateTask(context.Background(), store.NewTask{Title: " "}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a task without a title: %v", err)
	}
	if _, err := b.Task(context.Background(), "t_none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown task: %v", err)
	}
}

func TestAKeyMakesOneTask(t *testing.T) {
	b, _ := board(t)
	n := store.NewTask{Title: "once", IdempotencyKey: "k"}
	ids := make([]string, 20)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			k, _, err := b.CreateTask(context.Background(), n)
			if err != nil {
				t.Error(err)
			}
			ids[i] = k.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("two tasks: %s and %s", id, ids[0])
		}
	}
	set(t, b, ids[0], "archived", "")
	if k := create(t, b, n); k.ID == ids[0] {
		t.Error("an archived task was returned")
	}
}

func TestAChildWaitsForItsParents(t *testing.T) {
	ctx := context.Background()
	b, path := board(t)
	one, two := create(t, b, store.NewTask{Title: "one"}), create(t, b, store.NewTask{Title: "two"})
	child := create(t, b, store.NewTask{Title: "child", Parents: []string{one.ID, two.ID}})
	if child.Status != "todo" || !slices.Equal(child.Parents, []string{one.ID, two.ID}) {
		t.Errorf("child is %+v", child)
	}
	if _, err := b.SetStatus(ctx, child.ID, "ready", ""); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), one.ID) {
		t.Errorf("ready before its parents: %v", err)
	}
	if _, err := b.SetStatus(ctx, child.ID, "done", ""); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("done before its parents: %v", err)
	}
	set(t, b, one.ID, "done", "fine")
	if k, err := b.Task(ctx, child.ID); err != nil || k.Status != "todo" {
		t.Errorf("%+v, %v", k, err)
	}
	set(t, b, two.ID, "archived", "")
	if k, err := b.Task(ctx, child.ID); err != nil || k.Status != "ready" {
		t.Errorf("%+v, %v", k, err)
	}
	reopened := set(t, b, one.ID, "ready", "")
	if reopened.Status != "ready" || reopened.CompletedAt != 0 {
		t.Errorf("reopened parent is %+v", reopened)
	}
	if k, err := b.Task(ctx, child.ID); err != nil || k.Status != "todo" {
		t.Errorf("%+v, %v", k, err)
	}
	got := events(t, path, child.ID)
	if len(got) != 3 || got[1] != "promoted|" || got[2] != `status|{"parent":"`+one.ID+`","reason":"parent_reopened","status":"todo"}` {
		t.Errorf("events are %v", got)
	}
	if _, _, err := b.CreateTask(ctx, store.NewTask{Title: "x", Parents: []string{"t_none"}}); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "t_none") {
		t.Errorf("an unknown parent: %v", err)
	}
	if k := create(t, b, store.NewTask{Title: "late", Parents: []string{two.ID}}); k.Status != "ready" {
		t.Errorf("a child of an archived task is %+v", k)
	}
}

func TestStatusesAndTheirEvents(t *testing.T) {
	b, path := board(t)
	k := create(t, b, store.NewTask{Title: "task", Assignee: "ops"})
	set(t, b, k.ID, "blocked", "needs a key")
	set(t, b, k.ID, "blocked", "again") // is blocked already: nothing happens
	set(t, b, k.ID, "ready", "")
	set(t, b, k.ID, "blocked", "needs another")
	done := set(t, b, k.ID, "done", "first line\nsecond line")
	if done.Status != "done" || done.Result != "first line\nsecond line" || done.CompletedAt == 0 {
		t.Errorf("done task is %+v", done)
	}
	set(t, b, k.ID, "archived", "")
	want := []string{
		`blocked|{"kind":null,"reason":"needs a key","recurrences":0}`, "unblocked|",
		`blocked|{"kind":null,"reason":"needs another","recurrences":0}`,
		`completed|{"result_len":22,"summary":"first line"}`, "archived|",
	}
	if got := events(t, path, k.ID)[1:]; !slices.Equal(got, want) {
		t.Errorf("events are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := storetest.Query(t, path, "SELECT profile, status, outcome, summary, started_at = ended_at FROM task_runs ORDER BY id"); !slices.Equal(got, []string{
		"ops|blocked|blocked|needs a key|1", "ops|blocked|blocked|needs another|1", "ops|done|completed|first line\nsecond line|1"}) {
		t.Errorf("runs are %v", got)
	}
}

func TestMovesThatAreRefused(t *testing.T) {
	ctx := context.Background()
	b, _ := board(t)
	k := create(t, b, store.NewTask{Title: "task"})
	for _, to := range []string{"running", "triage", "nonsense", ""} {
		if _, err := b.SetStatus(ctx, k.ID, to, ""); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("ready to %q: %v", to, err)
		}
	}
	set(t, b, k.ID, "done", "")
	if _, err := b.SetStatus(ctx, k.ID, "blocked", "why"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("done to blocked: %v", err)
	}
	if _, err := b.SetStatus(ctx, "t_none", "done", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown task: %v", err)
	}
}

// A task that Hermes' dispatcher runs keeps its books in order when a person moves it.
func TestARunningTaskIsEndedWithItsRun(t *testing.T) {
	path := storetest.Fixture(t, "hermes-home-2026-07/kanban.db")
	b := storetest.BoardAt(t, path, "default", store.Options{})
	running := storetest.Query(t, path, "SELECT id FROM tasks WHERE status = 'running' ORDER BY id")
	set(t, b, running[0], "done", "did it")
	set(t, b, running[1], "archived", "")
	set(t, b, running[2], "blocked", "stuck")
	set(t, b, running[3], "ready", "")
	if got := storetest.Query(t, path, "SELECT count(*) FROM tasks WHERE current_run_id IS NOT NULL AND status <> 'running' OR claim_lock IS NOT NULL AND status <> 'running'"); got[0] != "0" {
		t.Errorf("%s tasks still have a run or a claim", got[0])
	}
	for i, want := range []string{"done|completed|did it", "reclaimed|reclaimed|task archived with run still active", "blocked|blocked|stuck", "reclaimed|reclaimed|status changed to ready"} {
		got := storetest.Query(t, path, "SELECT status, outcome, summary FROM task_runs WHERE task_id = ? AND ended_at IS NOT NULL ORDER BY id DESC LIMIT 1", running[i])
		if len(got) != 1 || got[0] != want {
			t.Errorf("run of task %d is %v, not %s", i, got, want)
		}
		if e := storetest.Query(t, path, "SELECT run_id IS NOT NULL FROM task_events WHERE task_id = ? ORDER BY id DESC LIMIT 1", running[i]); e[0] != "1" {
			t.Errorf("event of task %d does not name its run", i)
		}
	}
}

func TestTasksAreListed(t *testing.T) {
	ctx := context.Background()
	b, _ := board(t)
	low, high := create(t, b, store.NewTask{Title: "low"}), create(t, b, store.NewTask{Title: "high", Priority: 9})
	gone := create(t, b, store.NewTask{Title: "gone"})
	set(t, b, gone.ID, "archived", "")
	for status, want := range map[string][]string{"": {high.ID, low.ID}, "ready": {high.ID, low.ID}, "archived": {gone.ID}, "done": nil} {
		list, err := b.Tasks(ctx, status, 0)
		var ids []string
		for _, k := range list {
			ids = append(ids, k.ID)
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("%q: %v, %v", status, ids, err)
		}
	}
	if _, err := b.Tasks(ctx, "finished", 0); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "none of triage, todo") {
		t.Errorf("a status that there is not: %v", err)
	}
	if list, err := b.Tasks(ctx, "", 1); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
