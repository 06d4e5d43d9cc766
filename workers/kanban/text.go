package kanban

import (
	"encoding/json"
	"fmt"
	"strings"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// Lengths in characters, as the existing system has them: a notice is a line to glance at.
const (
	maxTitle   = 120
	maxSummary = 200
	maxResult  = 160
	maxReason  = 160
	maxError   = 200
)

// defaultBoard is the board that is not named in a notice.
const defaultBoard = "default"

// Text is what a chat is told of an event, or "" for a kind that is not told.
func Text(e *hostv1.Unseen) string {
	write, ok := texts[e.GetKind()]
	if !ok {
		return ""
	}
	t := e.GetTask()
	var who strings.Builder
	if b := oneLine(t.GetBoard()); b != "" && b != defaultBoard {
		fmt.Fprintf(&who, "[%s] ", b)
	}
	if a := oneLine(t.GetAssignee()); a != "" {
		fmt.Fprintf(&who, "@%s ", a)
	}
	id := t.GetId()
	if id == "" {
		id = e.GetSubscription().GetTaskId()
	}
	mark, rest := write(payloadOf(e.GetPayloadJson()), t)
	return mark + " " + who.String() + "Kanban " + oneLine(id) + " " + rest
}

// texts by kind of event: the sign at the beginning, and what comes after the task's id. Kinds that are not here
// (archived, unblocked, heartbeats, …) only move the cursor.
var texts = map[string]func(p payload, t *hostv1.Task) (mark, rest string){
	"completed": func(p payload, t *hostv1.Task) (string, string) {
		more := cut(firstLine(p.text("summary")), maxSummary)
		if more == "" {
			more = cut(firstLine(t.GetResult()), maxResult)
		}
		return "✔", "done" + titled(t) + below(more)
	},
	"blocked": func(p payload, _ *hostv1.Task) (string, string) {
		return "⏸", "blocked" + because(p.text("reason"))
	},
	"gave_up": func(p payload, _ *hostv1.Task) (string, string) {
		return "✖", "gave up after repeated spawn failures" + below(cut(oneLine(p.text("error")), maxError))
	},
	"crashed": func(payload, *hostv1.Task) (string, string) {
		return "✖", "worker crashed (pid gone); dispatcher will retry"
	},
	"timed_out": func(p payload, _ *hostv1.Task) (string, string) {
		if limit := p.text("limit_seconds"); limit != "" {
			return "⏱", "timed out (max_runtime=" + limit + "s); will retry"
		}
		return "⏱", "timed out; will retry"
	},
	"status": func(p payload, t *hostv1.Task) (string, string) {
		status := oneLine(p.text("status"))
		if status == "" {
			status = oneLine(t.GetStatus())
		}
		return "🔄", "→ " + cut(status, maxReason)
	},
	"review_requested": func(_ payload, t *hostv1.Task) (string, string) {
		return "👀", "ready for review" + titled(t)
	},
	"changes_requested": func(p payload, _ *hostv1.Task) (string, string) {
		rest := "review requested changes" + because(p.text("reason"))
		if by, to := oneLine(p.text("reviewer")), oneLine(p.text("implementer")); by != "" && to != "" {
			rest += " — reviewer @" + by + " → implementer @" + to
		}
		return "🛑", rest
	},
	"block_loop_detected": func(p payload, _ *hostv1.Task) (string, string) {
		rest := "routed to TRIAGE — needs a human decision"
		if n := p.text("recurrences"); n != "" {
			rest += " (blocked " + n + "x for the same cause)"
		}
		return "🛑", rest + because(p.text("reason"))
	},
}

// A payload is what an event says besides its kind. It is written by many programs, so nothing in it is relied upon.
type payload map[string]any

func payloadOf(raw string) payload {
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	var p payload
	if raw == "" || d.Decode(&p) != nil {
		return nil
	}
	return p
}

// text returns a text or a number, cut to what could be shown at all.
func (p payload) text(key string) string {
	switch v := p[key].(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return cut(v.String(), 20)
	}
	return ""
}

func titled(t *hostv1.Task) string {
	if title := cut(oneLine(t.GetTitle()), maxTitle); title != "" {
		return " — " + title
	}
	return ""
}

func because(reason string) string {
	if reason = cut(oneLine(reason), maxReason); reason != "" {
		return ": " + reason
	}
	return ""
}

func below(text string) string {
	if text == "" {
		return ""
	}
	return "\n" + text
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(s)
}

// oneLine joins the words of a text.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// cut shortens to n characters, the last of which says that it did.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return strings.TrimSpace(string(r[:n-1])) + "…"
}
