package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

func TestKanbanAsksForWhatTheLineSays(t *testing.T) {
	chat := &hostv1.Subscription{Platform: "terminal", ChatId: "main"}
	for _, tt := range []struct {
		line string
		want any
		out  string
	}{
		{"create Plants", &hostv1.CreateTaskRequest{Title: "Plants", CreatedBy: "cli"}, "created t_1 (ready)\n"},
		{"create Plants --body all --assignee ada --priority 3 --key k --after t_0,t_9 --subscribe --board ops",
			&hostv1.CreateTaskRequest{Title: "Plants", Body: "all", Assignee: "ada", Priority: 3, IdempotencyKey: "k", Parents: []string{"t_0", "t_9"},
				CreatedBy: "cli", Subscribe: chat, Board: "ops"}, "created t_1 (ready)\n"},
		{"list --status ready -n 3", &hostv1.ListTasksRequest{Status: "ready", Limit: 3}, "TASK  STATUS  ASSIGNEE  CREATED           TITLE\nt_1   ready   -         2025-12-01 14:40  Water the plants\n"},
		{"show t_1", &hostv1.GetTaskRequest{Id: "t_1"}, "task     t_1\ntitle    Water the plants\nstatus   ready\ncreated  2025-12-01 14:40\n\nthe big one too\n"},
		{"complete t_1", &hostv1.SetStatusRequest{Id: "t_1", Status: "done"}, "t_1 is done\n"},
		{"complete t_1 everything", &hostv1.SetStatusRequest{Id: "t_1", Status: "done", Summary: "everything"}, "t_1 is done\n"},
		{"block t_1 locked", &hostv1.SetStatusRequest{Id: "t_1", Status: "blocked", Summary: "locked"}, "t_1 is blocked\n"},
		{"archive t_1 --board ops", &hostv1.SetStatusRequest{Id: "t_1", Status: "archived", Board: "ops"}, "t_1 is archived\n"},
		{"subscribe t_1 --chat c --platform telegram --thread 5",
			&hostv1.SubscribeRequest{Subscription: &hostv1.Subscription{TaskId: "t_1", Platform: "telegram", ChatId: "c", ThreadId: "5"}}, "telegram c is told about t_1\n"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			r := newRig(t)
			r.boards.task = &hostv1.Task{Id: "t_1", Status: "ready", Title: "Water the plants", Body: "the big one too", CreatedAt: 1764600000}
			out := r.must(append([]string{"kanban"}, strings.Fields(tt.line)...)...)
			if diff := cmp.Diff([]any{tt.want}, r.boards.asked, protocmp.Transform()); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if out != tt.out {
				t.Errorf("stdout %q, want %q", out, tt.out)
			}
		})
	}
}

func TestOnlyABlockedTaskIsUnblocked(t *testing.T) {
	r := newRig(t)
	r.boards.task = &hostv1.Task{Id: "t_1", Status: "blocked"}
	if out := r.must("kanban", "unblock", "t_1"); out != "t_1 is ready\n" || len(r.boards.asked) != 2 {
		t.Errorf("stdout %q, asked %v", out, r.boards.asked)
	}
	r.boards.task, r.boards.asked = &hostv1.Task{Id: "t_1", Status: "done"}, nil
	if _, stderr, code := r.run("kanban", "unblock", "t_1"); code != ipc.ExitFailed || !strings.Contains(stderr, "it is done, not blocked") || len(r.boards.asked) != 1 {
		t.Errorf("exit %d, stderr %q, asked %v", code, stderr, r.boards.asked)
	}
}

func TestKanbanDocuments(t *testing.T) {
	r := newRig(t)
	if out := r.must("kanban", "list"); out != "no tasks\n" {
		t.Errorf("stdout %q", out)
	}
	if doc := asJSON(t, r.must("kanban", "list", "-o", "json")); len(doc["tasks"].([]any)) != 0 {
		t.Errorf("document %v", doc)
	}
	r.boards.task = &hostv1.Task{Id: "t_1", CreatedAt: 1764600000}
	if doc := asJSON(t, r.must("kanban", "show", "t_1", "-o", "json")); doc["created_at"] != 1764600000.0 || doc["parents"] == nil {
		t.Errorf("document %v", doc)
	}
}
