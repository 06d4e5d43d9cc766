package kanban

import (
	"strings"
	"testing"
	"unicode/utf8"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

func TestText(t *testing.T) {
	long := strings.Repeat("ä", 500)
	plain := &hostv1.Task{Id: "t_9", Board: "default", Title: "Roof", Result: "line one\nline two"}
	full := &hostv1.Task{Id: "t_9", Board: "house", Assignee: "ann", Title: "Roof", Status: "todo"}
	for _, c := range []struct {
		name, kind, payload string
		task                *hostv1.Task
		want                string
	}{
		{"completed with a summary", "completed", `{"summary":"tight\nand dry","result_len":9}`, full, "✔ [house] @ann Kanban t_9 done — Roof\ntight"},
		{"completed, result instead", "completed", `{"result_len":9}`, plain, "✔ Kanban t_9 done — Roof\nline one"},
		{"completed without anything", "completed", ``, &hostv1.Task{Id: "t_9"}, "✔ Kanban t_9 done"},
		{"completed, long summary", "completed", `{"summary":"` + long + `"}`, plain, "✔ Kanban t_9 done — Roof\n" + strings.Repeat("ä", 199) + "…"},
		{"completed, long title", "completed", ``, &hostv1.Task{Id: "t_9", Title: long}, "✔ Kanban t_9 done — " + strings.Repeat("ä", 119) + "…"},
		{"blocked", "blocked", `{"reason":"no\n  ladder"}`, full, "⏸ [house] @ann Kanban t_9 blocked: no ladder"},
		{"blocked without a reason", "blocked", `{}`, plain, "⏸ Kanban t_9 blocked"},
		{"gave up", "gave_up", `{"error":"exit 1","failures":3}`, plain, "✖ Kanban t_9 gave up after repeated spawn failures\nexit 1"},
		{"crashed", "crashed", `{"pid":12}`, plain, "✖ Kanban t_9 worker crashed (pid gone); dispatcher will retry"},
		{"timed out", "timed_out", `{"limit_seconds":900}`, plain, "⏱ Kanban t_9 timed out (max_runtime=900s); will retry"},
		{"timed out, limit unknown", "timed_out", ``, plain, "⏱ Kanban t_9 timed out; will retry"},
		{"status", "status", `{"status":"ready"}`, full, "🔄 [house] @ann Kanban t_9 → ready"},
		{"status of the task", "status", ``, full, "🔄 [house] @ann Kanban t_9 → todo"},
		{"review", "review_requested", `{"summary":"x"}`, full, "👀 [house] @ann Kanban t_9 ready for review — Roof"},
		{"changes", "changes_requested", `{"reason":"leaks","reviewer":"bob","implementer":"ann"}`, plain, "🛑 Kanban t_9 review requested changes: leaks — reviewer @bob → implementer @ann"},
		{"changes, people unknown", "changes_requested", `{"reason":"leaks"}`, plain, "🛑 Kanban t_9 review requested changes: leaks"},
		{"loop", "block_loop_detected", `{"reason":"no key","recurrences":3,"limit":3}`, plain, "🛑 Kanban t_9 routed to TRIAGE — needs a human decision (blocked 3x for the same cause): no key"},
		{"payload is no JSON", "blocked", `{"reason":`, plain, "⏸ Kanban t_9 blocked"},
		{"payload of another type", "blocked", `["reason"]`, plain, "⏸ Kanban t_9 blocked"},
		{"reason of another type", "blocked", `{"reason":{"a":1}}`, plain, "⏸ Kanban t_9 blocked"},
		{"title cannot make lines", "completed", ``, &hostv1.Task{Id: "t_9", Title: "a\n✔ Kanban t_0 done"}, "✔ Kanban t_9 done — a ✔ Kanban t_0 done"},
		{"archived is silent", "archived", ``, plain, ""},
		{"unblocked is silent", "unblocked", ``, plain, ""},
		{"a kind of later versions is silent", "polished", ``, plain, ""},
		{"the task is gone", "crashed", ``, nil, "✖ Kanban t_7 worker crashed (pid gone); dispatcher will retry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &hostv1.Unseen{Kind: c.kind, PayloadJson: c.payload, Task: c.task, Subscription: &hostv1.Subscription{TaskId: "t_7"}}
			if got := Text(e); got != c.want {
				t.Errorf("Text() = %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzText(f *testing.F) {
	f.Add("completed", `{"summary":"a\nb"}`, "title", "b", "a", "result")
	f.Add("blocked", `{"reason":1e999}`, "", "", "", "")
	f.Add("block_loop_detected", `{"recurrences":"\ud800"}`, "x", "default", "", "")
	f.Fuzz(func(t *testing.T, kind, payload, title, board, assignee, result string) {
		for _, s := range []string{kind, payload, title, board, assignee, result} {
			if !utf8.ValidString(s) {
				t.Skip("cannot come over the wire")
			}
		}
		task := &hostv1.Task{Id: "t_1", Title: title, Board: board, Assignee: assignee, Result: result}
		got := Text(&hostv1.Unseen{Kind: kind, PayloadJson: payload, Task: task})
		if !utf8.ValidString(got) {
			t.Errorf("Text() = %q is not valid UTF-8", got)
		}
		if _, told := texts[kind]; told != (got != "") {
			t.Errorf("Text() = %q for kind %q", got, kind)
		}
		if strings.Count(got, "\n") > 1 {
			t.Errorf("Text() = %q has more than two lines", got)
		}
	})
}
