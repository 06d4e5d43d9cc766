package tools

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// boards stands in for the supervisor's boards.
type boards struct {
	hostv1.UnimplementedBoardsServer
	mu      sync.Mutex
	created []*hostv1.CreateTaskRequest
	tasks   []*hostv1.Task
	keys    map[string]*hostv1.Task
	moved   []*hostv1.SetStatusRequest
	listed  []*hostv1.ListTasksRequest
}

func (b *boards) CreateTask(_ context.Context, r *hostv1.CreateTaskRequest) (*hostv1.Task, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.created = append(b.created, r)
	if r.Board == "Bad Board" {
		return nil, fmt.Errorf("board %q: %w", r.Board, ipc.ErrInvalid)
	}
	if t := b.keys[r.IdempotencyKey]; t != nil {
		return t, nil
	}
	t := &hostv1.Task{Id: fmt.Sprintf("t_%d", len(b.tasks)+1), Title: r.Title, Body: r.Body, Status: "ready", CreatedAt: 1_767_225_600}
	if b.keys == nil {
		b.keys = map[string]*hostv1.Task{}
	}
	b.keys[r.IdempotencyKey], b.tasks = t, append(b.tasks, t)
	return t, nil
}

func (b *boards) ListTasks(_ context.Context, r *hostv1.ListTasksRequest) (*hostv1.ListTasksResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listed = append(b.listed, r)
	return &hostv1.ListTasksResponse{Tasks: b.tasks[:min(len(b.tasks), int(r.Limit))]}, nil
}

func (b *boards) find(id string) (*hostv1.Task, error) {
	for _, t := range b.tasks {
		if t.Id == id {
			return t, nil
		}
	}
	return nil, fmt.Errorf("task %s: %w", id, ipc.ErrNotFound)
}

func (b *boards) GetTask(_ context.Context, r *hostv1.GetTaskRequest) (*hostv1.Task, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.find(r.Id)
}

func (b *boards) SetStatus(_ context.Context, r *hostv1.SetStatusRequest) (*hostv1.Task, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moved = append(b.moved, r)
	t, err := b.find(r.Id)
	if err == nil && t.Status == "archived" {
		err = fmt.Errorf("task %s is archived: %w", r.Id, ipc.ErrRefused)
	}
	if err != nil {
		return nil, err
	}
	return &hostv1.Task{Id: t.Id, Status: r.Status}, nil
}

func TestATaskIsMadeOnceForACall(t *testing.T) {
	f := started(t, nil)
	for range 2 { // the second is the same call, attempted again
		var r kanbanCreated
		f.ok("kanban_create", args{"title": " buy milk ", "body": "two", "assignee": "ann", "priority": 3, "parents": []string{"t_9"}}, &r)
		if want := (kanbanCreated{true, "t_1", "ready", true}); r != want {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
	if len(f.boards.tasks) != 1 {
		t.Errorf("%d tasks", len(f.boards.tasks))
	}
	got := f.boards.created[0]
	if got.Title != "buy milk" || got.Body != "two" || got.Assignee != "ann" || got.Priority != 3 || got.Parents[0] != "t_9" || got.IdempotencyKey != "t1/c1" || got.SessionId != "s1" {
		t.Errorf("asked for %v", got)
	}
	if s := got.Subscribe; s == nil || s.Platform != "terminal" || s.ChatId != "here" {
		t.Errorf("subscription %v", got.Subscribe)
	}
}

func TestOnlyAChatThatCanBeToldIsSubscribed(t *testing.T) {
	f := started(t, nil)
	for n, row := range []struct {
		origin *toolv1.Origin
		want   string
	}{
		{&toolv1.Origin{Platform: "telegram", ChatId: "7", ThreadId: "8", UserId: "9"}, "telegram/7/8/9"},
		{&toolv1.Origin{Platform: "terminal", ChatId: "tty"}, "terminal/tty//"},
		{&toolv1.Origin{Platform: "api", ChatId: "x"}, ""},
		{&toolv1.Origin{Platform: "telegram"}, ""},
		{nil, ""},
	} {
		o := f.callAs(t.Context(), "kanban_create", args{"title": "x"}, row.origin)
		if o.err != nil || o.result.Error != nil {
			t.Fatal(o)
		}
		got := ""
		if s := f.boards.created[n].Subscribe; s != nil {
			got = strings.Join([]string{s.Platform, s.ChatId, s.ThreadId, s.UserId}, "/")
		}
		if got != row.want || strings.Contains(o.result.Content, `"subscribed":true`) != (row.want != "") {
			t.Errorf("%v: %q, %s", row.origin, got, o.result.Content)
		}
	}
}

func TestTasksAreListedAndShown(t *testing.T) {
	f := started(t, nil)
	for _, title := range []string{"a", "b", "c"} {
		f.boards.tasks = append(f.boards.tasks, &hostv1.Task{Id: "t_" + title, Title: title, Body: "long", Status: "ready", CreatedAt: 1_767_225_600})
	}
	var list kanbanTasks
	f.ok("kanban_list", args{"limit": 2, "status": "ready"}, &list)
	if list.Count != 2 || !list.Truncated || list.Tasks[1].ID != "t_b" || list.Tasks[0].Body != "" || list.Tasks[0].CreatedAt != "2026-01-01T00:00:00Z" {
		t.Errorf("%+v", list)
	}
	f.ok("kanban_list", args{}, &list)
	if list.Count != 3 || list.Truncated || f.boards.listed[1].Limit != 51 || f.boards.listed[0].Status != "ready" {
		t.Errorf("%+v", list)
	}
	var task kanbanTask
	f.ok("kanban_show", args{"task_id": "t_b"}, &task)
	if task.Title != "b" || task.Body != "long" || task.Status != "ready" {
		t.Errorf("%+v", task)
	}
	f.fails("kanban_show", args{"task_id": "t_z"}, failed, "task t_z not found")
	f.fails("kanban_list", args{"status": "lost"}, toolv1.ToolError_KIND_BAD_ARGUMENTS, `"status" must be one of`)
}

func TestTasksAreMoved(t *testing.T) {
	f := started(t, nil)
	f.boards.tasks = []*hostv1.Task{{Id: "t_1", Status: "ready"}, {Id: "t_2", Status: "archived"}}
	var r kanbanMoved
	f.ok("kanban_complete", args{"task_id": "t_1", "summary": "bought"}, &r)
	if want := (kanbanMoved{true, "t_1", "done"}); r != want || f.boards.moved[0].Summary != "bought" {
		t.Errorf("%+v, %v", r, f.boards.moved)
	}
	f.ok("kanban_block", args{"task_id": "t_1", "reason": "no money"}, &r)
	if want := (kanbanMoved{true, "t_1", "blocked"}); r != want || f.boards.moved[1].Summary != "no money" {
		t.Errorf("%+v, %v", r, f.boards.moved)
	}
	f.fails("kanban_complete", args{"task_id": "t_9", "summary": "x"}, failed, "could not complete t_9: task not found")
	f.fails("kanban_block", args{"task_id": "t_2", "reason": "x"}, failed, "could not block t_2: task t_2 is archived")
	f.fails("kanban_block", args{"task_id": "t_1", "reason": " "}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "say why")
	f.fails("kanban_create", args{"title": "x", "board": "Bad Board"}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "Bad Board")
	f.fails("kanban_create", args{"title": " "}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "is empty")
}
