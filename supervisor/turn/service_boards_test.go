package turn

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// boardRig is a rig with a real board.
func boardRig(t *testing.T, test func(t *testing.T, r *rig, op *process, kanban *process)) {
	t.Helper()
	var board *store.Board
	cfg := Config{Boards: func(slug string) (Board, error) {
		if slug != "" {
			return nil, fmt.Errorf("board %s: %w", slug, ipc.ErrNotFound)
		}
		return board, nil
	}}
	bubbleWith(t, cfg, func(t *testing.T, r *rig) {
		var err error
		if board, err = store.OpenBoard(t.Context(), filepath.Join(filepath.Dir(r.path), "kanban.db"), "default", store.Options{}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = board.Close() }()
		test(t, r, r.caller(ipc.Identity{Worker: "operator", Role: ipc.RoleOperator}), r.caller(ipc.Identity{Worker: "kanban", Role: ipc.RoleKanban}))
	})
}

func TestNoticeOfATaskReachesTheTerminalOnce(t *testing.T) {
	boardRig(t, func(t *testing.T, r *rig, op, kanban *process) {
		ctx := t.Context()
		task, err := op.boards().CreateTask(ctx, &hostv1.CreateTaskRequest{Title: "write the page", CreatedBy: "me",
			Subscribe: &hostv1.Subscription{Platform: PlatformTerminal, ChatId: "main"}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := op.boards().GetTask(ctx, &hostv1.GetTaskRequest{Id: task.Id}); err != nil || got.Title != "write the page" {
			t.Fatalf("task is %v, %v", got, err)
		}
		if list, err := op.boards().ListTasks(ctx, &hostv1.ListTasksRequest{}); err != nil || len(list.Tasks) != 1 {
			t.Fatalf("tasks are %v, %v", list, err)
		}
		if _, err := op.boards().SetStatus(ctx, &hostv1.SetStatusRequest{Id: task.Id, Status: "done", Summary: "written"}); err != nil {
			t.Fatal(err)
		}
		unseen, err := kanban.boards().Unseen(ctx, &hostv1.UnseenRequest{})
		if err != nil || len(unseen.Items) == 0 {
			t.Fatalf("unseen are %v, %v", unseen, err)
		}
		last := unseen.Items[len(unseen.Items)-1]
		if last.Kind != "completed" || last.Task.Title != "write the page" || last.Subscription.ChatId != "main" {
			t.Fatalf("the last event is %v", last)
		}
		notify := &hostv1.NotifyRequest{Subscription: last.Subscription, EventId: last.EventId, Text: "done"}
		for i := range 2 {
			if n, err := kanban.boards().Notify(ctx, notify); err != nil || n.Duplicate != (i == 1) {
				t.Fatalf("notice %d: %v, %v", i+1, n, err)
			}
		}
		if again, err := kanban.boards().Unseen(ctx, &hostv1.UnseenRequest{}); err != nil || len(again.Items) != 0 {
			t.Fatalf("unseen after the notice are %v, %v", again, err)
		}
		rows, err := r.state.PendingOutbox(ctx, PlatformTerminal, "main", 10)
		if err != nil || len(rows) != 1 || rows[0].Text != "done" {
			t.Fatalf("owed are %+v, %v", rows, err)
		}
		// A platform that shows no notices gets none, and its cursor moves all the same.
		sub := &hostv1.Subscription{TaskId: task.Id, Platform: "api", ChatId: "x"}
		if _, err := op.boards().Subscribe(ctx, &hostv1.SubscribeRequest{Subscription: sub}); err != nil {
			t.Fatal(err)
		}
		if _, err := kanban.boards().Notify(ctx, &hostv1.NotifyRequest{Subscription: sub, EventId: last.EventId, Text: "done"}); err != nil {
			t.Fatal(err)
		}
		if len(r.eventsOf("notice_dropped")) != 1 {
			t.Error("nothing says that a notice was dropped")
		}
	})
}

func TestBoardsCheckTheirInput(t *testing.T) {
	boardRig(t, func(t *testing.T, r *rig, op, kanban *process) {
		ctx, b, k := t.Context(), op.boards(), kanban.boards()
		sub := &hostv1.Subscription{TaskId: "t", Platform: "p", ChatId: "c"}
		for name, try := range map[string]func() error{
			"title missing": func() error { _, err := b.CreateTask(ctx, &hostv1.CreateTaskRequest{Title: " "}); return err },
			"title long": func() error {
				_, err := b.CreateTask(ctx, &hostv1.CreateTaskRequest{Title: strings.Repeat("x", maxTitle+1)})
				return err
			},
			"body long": func() error {
				_, err := b.CreateTask(ctx, &hostv1.CreateTaskRequest{Title: "x", Body: strings.Repeat("x", maxText+1)})
				return err
			},
			"parent missing": func() error {
				_, err := b.CreateTask(ctx, &hostv1.CreateTaskRequest{Title: "x", Parents: []string{""}})
				return err
			},
			"no chat": func() error {
				_, err := b.CreateTask(ctx, &hostv1.CreateTaskRequest{Title: "x", Subscribe: &hostv1.Subscription{Platform: "p"}})
				return err
			},
			"board name":      func() error { _, err := b.ListTasks(ctx, &hostv1.ListTasksRequest{Board: "a\x00"}); return err },
			"no id":           func() error { _, err := b.GetTask(ctx, &hostv1.GetTaskRequest{}); return err },
			"no status":       func() error { _, err := b.SetStatus(ctx, &hostv1.SetStatusRequest{Id: "t"}); return err },
			"no subscription": func() error { _, err := b.Subscribe(ctx, &hostv1.SubscribeRequest{}); return err },
			"no event":        func() error { _, err := k.Notify(ctx, &hostv1.NotifyRequest{Subscription: sub}); return err },
			"notice long": func() error {
				_, err := k.Notify(ctx, &hostv1.NotifyRequest{Subscription: sub, EventId: 1, Text: strings.Repeat("x", maxText+1)})
				return err
			},
		} {
			if err := try(); !errors.Is(err, ipc.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := b.ListTasks(ctx, &hostv1.ListTasksRequest{Board: "other"}); !errors.Is(err, ipc.ErrNotFound) {
			t.Errorf("another board: %v", err)
		}
		if _, err := b.GetTask(ctx, &hostv1.GetTaskRequest{Id: "t_none"}); !errors.Is(err, ipc.ErrNotFound) {
			t.Errorf("no task: %v", err)
		}
	})
}

func TestNoticeKeysOfDifferentNoticesDiffer(t *testing.T) {
	a := noticeKey(&hostv1.Subscription{TaskId: "t", Platform: "p", ChatId: "a/b", ThreadId: ""}, 1)
	b := noticeKey(&hostv1.Subscription{TaskId: "t", Platform: "p", ChatId: "a", ThreadId: "b/"}, 1)
	if a == b {
		t.Errorf("both are %q", a)
	}
	if got := noticeKey(&hostv1.Subscription{Board: "ops", TaskId: "t_1", Platform: PlatformTerminal, ChatId: "main"}, 7); got != "kanban/ops/t_1/terminal/main//7" {
		t.Errorf("key is %q", got)
	}
}
