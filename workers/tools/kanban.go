package tools

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

var (
	//go:embed kanban_create.md
	kanbanCreateText string
	//go:embed kanban_list.md
	kanbanListText string
	//go:embed kanban_show.md
	kanbanShowText string
	//go:embed kanban_complete.md
	kanbanCompleteText string
	//go:embed kanban_block.md
	kanbanBlockText string
)

// kanban is the tools of the boards. The boards themselves are the supervisor's.
type kanban struct {
	boards hostv1.BoardsClient
}

func (t *kanban) tools() []plugins.Tool {
	// A store that somebody else locks makes a write wait for half a minute.
	times := plugins.Timeout(5*time.Second, 35*time.Second)
	return []plugins.Tool{
		plugins.Func("kanban_create", kanbanCreateText, t.create, times),
		plugins.Func("kanban_list", kanbanListText, t.list, plugins.ReadOnly(), times),
		plugins.Func("kanban_show", kanbanShowText, t.show, plugins.ReadOnly(), times),
		plugins.Func("kanban_complete", kanbanCompleteText, t.complete, times),
		plugins.Func("kanban_block", kanbanBlockText, t.block, times),
	}
}

// kanbanTask is a task as the model reads it.
type kanbanTask struct {
	ID          string   `json:"id"`
	Board       string   `json:"board,omitempty"`
	Title       string   `json:"title"`
	Body        string   `json:"body,omitempty"`
	Assignee    string   `json:"assignee,omitempty"`
	Status      string   `json:"status"`
	Priority    int32    `json:"priority"`
	CreatedBy   string   `json:"created_by,omitempty"`
	CreatedAt   string   `json:"created_at,omitempty"`
	StartedAt   string   `json:"started_at,omitempty"`
	CompletedAt string   `json:"completed_at,omitempty"`
	Result      string   `json:"result,omitempty"`
	Tenant      string   `json:"tenant,omitempty"`
	Parents     []string `json:"parents,omitempty"`
}

func kanbanTaskOf(t *hostv1.Task) kanbanTask {
	at := func(seconds int64) string {
		if seconds == 0 {
			return ""
		}
		return time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	}
	return kanbanTask{
		ID: t.Id, Board: t.Board, Title: t.Title, Body: t.Body, Assignee: t.Assignee, Status: t.Status, Priority: t.Priority, CreatedBy: t.CreatedBy,
		CreatedAt: at(t.CreatedAt), StartedAt: at(t.StartedAt), CompletedAt: at(t.CompletedAt), Result: t.Result, Tenant: t.Tenant, Parents: t.Parents,
	}
}

type kanbanCreateArgs struct {
	Title    string   `json:"title" jsonschema:"what is to be done, in one line"`
	Body     string   `json:"body,omitempty" jsonschema:"all that whoever does it must know"`
	Assignee string   `json:"assignee,omitempty" jsonschema:"who is to do it; nobody if not given"`
	Priority int32    `json:"priority,omitempty" jsonschema:"higher is done first"`
	Parents  []string `json:"parents,omitempty" jsonschema:"ids of tasks that must be done before"`
	Board    string   `json:"board,omitempty" jsonschema:"the default board if not given"`
}

func (a kanbanCreateArgs) Validate() error {
	if strings.TrimSpace(a.Title) == "" {
		return errors.New(`"title" is empty`)
	}
	return nil
}

type kanbanCreated struct {
	OK         bool   `json:"ok"`
	TaskID     string `json:"task_id"`
	Status     string `json:"status"`
	Subscribed bool   `json:"subscribed"`
}

// create makes a task, once for each call of a turn however often it is attempted.
func (t *kanban) create(ctx context.Context, c *plugins.Call, a kanbanCreateArgs) (kanbanCreated, error) {
	subscription := subscriptionOf(c.Origin, a.Board)
	task, err := t.boards.CreateTask(ctx, &hostv1.CreateTaskRequest{
		Board: a.Board, Title: strings.TrimSpace(a.Title), Body: a.Body, Assignee: a.Assignee, Priority: a.Priority, Parents: a.Parents,
		CreatedBy: "agent", IdempotencyKey: c.Key(), SessionId: c.Origin.SessionID, Subscribe: subscription,
	})
	if err != nil {
		return kanbanCreated{}, kanbanError("kanban_create", err)
	}
	return kanbanCreated{OK: true, TaskID: task.Id, Status: task.Status, Subscribed: subscription != nil}, nil
}

// pullPlatforms have nobody who could be told later: their clients ask and go.
var pullPlatforms = map[string]bool{"": true, "api": true, "cron": true}

// subscriptionOf has the chat told that the call comes from, nil if it cannot be told.
func subscriptionOf(o plugins.Origin, board string) *hostv1.Subscription {
	if pullPlatforms[o.Platform] || o.ChatID == "" {
		return nil
	}
	return &hostv1.Subscription{Board: board, Platform: o.Platform, ChatId: o.ChatID, ThreadId: o.ThreadID, UserId: o.UserID}
}

// kanbanError puts what went wrong into words for the model.
func kanbanError(tool string, err error) error {
	switch {
	case errors.Is(err, ipc.ErrInvalid):
		return plugins.BadArguments("%s: %v", tool, err)
	case errors.Is(err, ipc.ErrGone):
		return fmt.Errorf("%s: the boards cannot be reached: %w", tool, err)
	}
	return fmt.Errorf("%s: %w", tool, err)
}

type kanbanListArgs struct {
	Status string `json:"status,omitempty" jsonschema:"only tasks in this status" enum:"triage,todo,ready,running,blocked,review,scheduled,done,archived"`
	Limit  uint32 `json:"limit,omitempty" jsonschema:"how many at most" minimum:"1" maximum:"200" default:"50"`
	Board  string `json:"board,omitempty" jsonschema:"the default board if not given"`
}

type kanbanTasks struct {
	Tasks     []kanbanTask `json:"tasks"`
	Count     int          `json:"count"`
	Truncated bool         `json:"truncated"`
}

func (t *kanban) list(ctx context.Context, _ *plugins.Call, a kanbanListArgs) (kanbanTasks, error) {
	// One more than asked for shows whether there are more.
	r, err := t.boards.ListTasks(ctx, &hostv1.ListTasksRequest{Board: a.Board, Status: a.Status, Limit: a.Limit + 1})
	if err != nil {
		return kanbanTasks{}, kanbanError("kanban_list", err)
	}
	out := kanbanTasks{Tasks: []kanbanTask{}, Truncated: len(r.Tasks) > int(a.Limit)}
	for _, task := range r.Tasks[:min(len(r.Tasks), int(a.Limit))] {
		k := kanbanTaskOf(task)
		k.Body = "" // kanban_show has it
		out.Tasks = append(out.Tasks, k)
	}
	out.Count = len(out.Tasks)
	return out, nil
}

type kanbanShowArgs struct {
	TaskID string `json:"task_id"`
	Board  string `json:"board,omitempty" jsonschema:"the default board if not given"`
}

func (t *kanban) show(ctx context.Context, _ *plugins.Call, a kanbanShowArgs) (kanbanTask, error) {
	task, err := t.boards.GetTask(ctx, &hostv1.GetTaskRequest{Board: a.Board, Id: a.TaskID})
	if errors.Is(err, ipc.ErrNotFound) {
		return kanbanTask{}, fmt.Errorf("task %s not found", a.TaskID)
	}
	if err != nil {
		return kanbanTask{}, kanbanError("kanban_show", err)
	}
	return kanbanTaskOf(task), nil
}

type kanbanCompleteArgs struct {
	TaskID  string `json:"task_id"`
	Summary string `json:"summary" jsonschema:"what came of it, in one to three sentences"`
	Board   string `json:"board,omitempty" jsonschema:"the default board if not given"`
}

type kanbanMoved struct {
	OK     bool   `json:"ok"`
	TaskID string `json:"task_id"`
	Status string `json:"status"`
}

func (t *kanban) complete(ctx context.Context, _ *plugins.Call, a kanbanCompleteArgs) (kanbanMoved, error) {
	return t.move(ctx, "complete", &hostv1.SetStatusRequest{Board: a.Board, Id: a.TaskID, Status: "done", Summary: a.Summary})
}

type kanbanBlockArgs struct {
	TaskID string `json:"task_id"`
	Reason string `json:"reason" jsonschema:"what a person must do or say"`
	Board  string `json:"board,omitempty" jsonschema:"the default board if not given"`
}

func (t *kanban) block(ctx context.Context, _ *plugins.Call, a kanbanBlockArgs) (kanbanMoved, error) {
	return t.move(ctx, "block", &hostv1.SetStatusRequest{Board: a.Board, Id: a.TaskID, Status: "blocked", Summary: a.Reason})
}

// move sets a task's status. What is in the way of that is told with the status it has.
func (t *kanban) move(ctx context.Context, verb string, req *hostv1.SetStatusRequest) (kanbanMoved, error) {
	if strings.TrimSpace(req.Summary) == "" {
		return kanbanMoved{}, plugins.BadArguments("kanban_%s: say why or what came of it", verb)
	}
	task, err := t.boards.SetStatus(ctx, req)
	switch {
	case errors.Is(err, ipc.ErrNotFound):
		return kanbanMoved{}, fmt.Errorf("could not %s %s: task not found", verb, req.Id)
	case errors.Is(err, ipc.ErrRefused):
		return kanbanMoved{}, fmt.Errorf("could not %s %s: %w", verb, req.Id, err)
	case err != nil:
		return kanbanMoved{}, kanbanError("kanban_"+verb, err)
	}
	return kanbanMoved{OK: true, TaskID: task.Id, Status: task.Status}, nil
}
