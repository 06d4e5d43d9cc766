package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// SetStatus moves a task to done, blocked, ready or archived and writes the event that goes with it. summary is the
// result of done and the reason of blocked. A task that has the status already is returned as it is.
func (b *Board) SetStatus(ctx context.Context, id, status, summary string) (Task, error) {
	summary = strings.TrimSpace(valid(summary))
	return write(ctx, b.database, func(t *tx) (Task, error) {
		k, err := b.task(t, id)
		if err != nil || k.Status == status {
			return k, err
		}
		switch status {
		case taskDone:
			err = b.complete(t, k, summary)
		case taskBlocked:
			err = b.block(t, k, summary)
		case taskReady:
			err = b.makeReady(t, k)
		case taskArchived:
			err = b.archive(t, k)
		case taskRunning:
			err = fmt.Errorf("%w: a task is not set to running, it is claimed", ErrInvalid)
		default:
			err = fmt.Errorf("%w: status %q cannot be set", ErrInvalid, status)
		}
		if err != nil {
			return k, err
		}
		return b.task(t, id)
	})
}

func refuseMove(k Task, to string) error {
	return fmt.Errorf("%w: task %q is %s and cannot become %s", ErrInvalid, k.ID, k.Status, to)
}

// summaryLimit is the length of a summary in an event, in characters.
const summaryLimit = 400

func (b *Board) complete(t *tx, k Task, result string) error {
	switch k.Status {
	case taskRunning, taskReady, taskBlocked, taskReview:
	default:
		return refuseMove(k, taskDone)
	}
	run, err := b.endRun(t, k, "done", "completed", result)
	if err != nil {
		return err
	}
	if _, err := t.run(`UPDATE tasks SET status = 'done', result = ?, completed_at = ?, claim_lock = NULL, claim_expires = NULL,
		worker_pid = NULL, consecutive_failures = 0, last_failure_error = NULL, block_kind = NULL, block_recurrences = 0 WHERE id = ?`,
		text(result), b.now().Unix(), k.ID); err != nil {
		return err
	}
	first, _, _ := strings.Cut(result, "\n")
	if err := b.event(t, k.ID, run, "completed", payload{
		"result_len": utf8.RuneCountInString(result), "summary": text(cut(first, summaryLimit))}); err != nil {
		return err
	}
	return b.promoteChildren(t, k.ID)
}

func (b *Board) block(t *tx, k Task, reason string) error {
	if k.Status != taskRunning && k.Status != taskReady {
		return refuseMove(k, taskBlocked)
	}
	run, err := b.endRun(t, k, "blocked", "blocked", reason)
	if err != nil {
		return err
	}
	if _, err := t.run(`UPDATE tasks SET status = 'blocked', claim_lock = NULL, claim_expires = NULL, worker_pid = NULL, block_kind = NULL
		WHERE id = ?`, k.ID); err != nil {
		return err
	}
	return b.event(t, k.ID, run, "blocked", payload{"reason": text(reason), "kind": nil, "recurrences": 0})
}

// makeReady releases a task. One whose parents are not finished goes back to todo, from where it is promoted by itself.
func (b *Board) makeReady(t *tx, k Task) error {
	open, err := openParents(t, k.ID)
	if err != nil {
		return err
	}
	to := taskReady
	if len(open) > 0 {
		to = taskTodo
	}
	run, err := b.endRun(t, k, "reclaimed", "reclaimed", "status changed to "+to)
	if err != nil {
		return err
	}
	set := func(kind string, p payload) error {
		_, err := t.run(`UPDATE tasks SET status = ?, claim_lock = NULL, claim_expires = NULL, worker_pid = NULL, completed_at = NULL,
			consecutive_failures = 0, last_failure_error = NULL WHERE id = ?`, to, k.ID)
		if err != nil {
			return err
		}
		return b.event(t, k.ID, run, kind, p)
	}
	switch k.Status {
	case taskBlocked, taskScheduled, taskReview:
		if to == taskTodo {
			return set("unblocked", payload{"status": to})
		}
		return set("unblocked", nil)
	case taskTodo:
		if to == taskTodo {
			return fmt.Errorf("%w: unsatisfied parent dependencies: %s", ErrInvalid, strings.Join(open, ", "))
		}
		return set("promoted", nil)
	}
	if err := set("status", payload{"status": to}); err != nil {
		return err
	}
	if k.Status == taskDone || k.Status == taskArchived {
		return b.demoteChildren(t, k.ID)
	}
	return nil
}

func (b *Board) archive(t *tx, k Task) error {
	run, err := b.endRun(t, k, "reclaimed", "reclaimed", "task archived with run still active")
	if err != nil {
		return err
	}
	if _, err := t.run("UPDATE tasks SET status = 'archived', claim_lock = NULL, claim_expires = NULL, worker_pid = NULL WHERE id = ?", k.ID); err != nil {
		return err
	}
	if err := b.event(t, k.ID, run, "archived", nil); err != nil {
		return err
	}
	return b.promoteChildren(t, k.ID)
}

// endRun closes the open run of a task and returns its id. A task that was never claimed gets a run of no length if
// there is something to hand over.
func (b *Board) endRun(t *tx, k Task, status, outcome, summary string) (any, error) {
	var run *int64
	if err := t.get("SELECT current_run_id FROM tasks WHERE id = ?", []any{k.ID}, &run); err != nil {
		return nil, err
	}
	now := b.now().Unix()
	if run != nil {
		if _, err := t.run(`UPDATE task_runs SET status = ?, outcome = ?, summary = coalesce(?, summary), ended_at = ?, claim_lock = NULL,
			claim_expires = NULL WHERE id = ? AND ended_at IS NULL`, status, outcome, text(summary), now, *run); err != nil {
			return nil, err
		}
		_, err := t.run("UPDATE tasks SET current_run_id = NULL WHERE id = ?", k.ID)
		return *run, err
	}
	if summary == "" || outcome == "reclaimed" {
		return nil, nil
	}
	id, err := t.insert(`INSERT INTO task_runs(task_id, profile, status, outcome, summary, started_at, ended_at)
		VALUES(?, ?, ?, ?, ?, ?, ?)`, k.ID, text(k.Assignee), status, outcome, summary, now, now)
	return id, err
}

// openParents returns the parents that are neither done nor archived.
func openParents(t *tx, id string) ([]string, error) {
	return all(t, scanString, `SELECT p.id FROM task_links AS l JOIN tasks AS p ON p.id = l.parent_id
		WHERE l.child_id = ? AND p.status NOT IN ('done', 'archived') ORDER BY p.id`, id)
}

// promoteChildren makes children ready whose last open parent has ended.
func (b *Board) promoteChildren(t *tx, parent string) error {
	children, err := all(t, scanString, `SELECT c.id FROM task_links AS l JOIN tasks AS c ON c.id = l.child_id
		WHERE l.parent_id = ? AND c.status = 'todo' ORDER BY c.id`, parent)
	for _, id := range children {
		open, err := openParents(t, id)
		if err != nil {
			return err
		}
		if len(open) > 0 {
			continue
		}
		if _, err := t.run("UPDATE tasks SET status = 'ready' WHERE id = ?", id); err != nil {
			return err
		}
		if err := b.event(t, id, nil, "promoted", nil); err != nil {
			return err
		}
	}
	return err
}

// demoteChildren takes ready children back when their parent is opened again.
func (b *Board) demoteChildren(t *tx, parent string) error {
	children, err := all(t, scanString, `SELECT c.id FROM task_links AS l JOIN tasks AS c ON c.id = l.child_id
		WHERE l.parent_id = ? AND c.status = 'ready' ORDER BY c.id`, parent)
	for _, id := range children {
		if _, err := t.run("UPDATE tasks SET status = 'todo' WHERE id = ?", id); err != nil {
			return err
		}
		if err := b.event(t, id, nil, "status", payload{"status": taskTodo, "reason": "parent_reopened", "parent": parent}); err != nil {
			return err
		}
	}
	return err
}

// payload is the JSON object of an event.
type payload map[string]any

// event appends to a task's history. run is the id of a run or nil.
func (b *Board) event(t *tx, task string, run any, kind string, p payload) error {
	var data any
	if p != nil {
		var buf bytes.Buffer
		e := json.NewEncoder(&buf)
		e.SetEscapeHTML(false)
		if err := e.Encode(p); err != nil {
			return errors.Join(ErrInvalid, err)
		}
		data = strings.TrimSuffix(buf.String(), "\n")
	}
	_, err := t.run("INSERT INTO task_events(task_id, run_id, kind, payload, created_at) VALUES(?, ?, ?, ?, ?)",
		task, run, kind, data, b.now().Unix())
	return err
}

// cut shortens s to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}
