package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Board is one kanban board of Hermes, a file of its own.
type Board struct {
	*database
	slug string
}

// OpenBoard opens or creates the board slug at path. A board of Hermes gets what it lacks and keeps what it has.
func OpenBoard(ctx context.Context, path, slug string, o Options) (*Board, error) {
	d, err := open(ctx, path, kind{migrations: "board", sync: "FULL", foreign: true}, o)
	if err != nil {
		return nil, err
	}
	return &Board{d, slug}, nil
}

// Statuses of a task.
const (
	taskTriage    = "triage"
	taskTodo      = "todo"
	taskScheduled = "scheduled"
	taskReady     = "ready"
	taskRunning   = "running"
	taskBlocked   = "blocked"
	taskReview    = "review"
	taskDone      = "done"
	taskArchived  = "archived"
)

var taskStatuses = []string{taskTriage, taskTodo, taskScheduled, taskReady, taskRunning, taskBlocked, taskReview, taskDone, taskArchived}

const taskColumns = `SELECT t.id, t.title, coalesce(t.body, ''), coalesce(t.assignee, ''), t.status, coalesce(t.created_by, ''),
	coalesce(t.tenant, ''), coalesce(t.result, ''), coalesce(t.priority, 0), t.created_at, coalesce(t.started_at, 0),
	coalesce(t.completed_at, 0) FROM tasks AS t`

func (b *Board) scanTask(row scanner) (k Task, err error) {
	k.Board = b.slug
	err = row.Scan(&k.ID, &k.Title, &k.Body, &k.Assignee, &k.Status, &k.CreatedBy, &k.Tenant, &k.Result, &k.Priority,
		&k.CreatedAt, &k.StartedAt, &k.CompletedAt)
	return k, err
}

func (b *Board) task(t *tx, id string) (Task, error) {
	k, err := one(t, b.scanTask, taskColumns+" WHERE t.id = ?", id)
	if errors.Is(err, ErrNotFound) {
		return k, fmt.Errorf("task %q: %w", id, err)
	}
	if err != nil {
		return k, err
	}
	k.Parents, err = all(t, scanString, "SELECT parent_id FROM task_links WHERE child_id = ? ORDER BY rowid", id)
	return k, err
}

// Task returns one task.
func (b *Board) Task(ctx context.Context, id string) (Task, error) {
	return read(ctx, b.database, func(t *tx) (Task, error) { return b.task(t, id) })
}

// Tasks returns the tasks of a status, all that are not archived if it is empty; the most urgent first, then the oldest.
func (b *Board) Tasks(ctx context.Context, status string, limit int) ([]Task, error) {
	if status != "" && !slices.Contains(taskStatuses, status) {
		return nil, fmt.Errorf("%w: status %q is none of %s", ErrInvalid, status, strings.Join(taskStatuses, ", "))
	}
	return read(ctx, b.database, func(t *tx) ([]Task, error) {
		list, err := all(t, b.scanTask, taskColumns+` WHERE (?1 = '' AND t.status <> 'archived' OR t.status = ?1)
			ORDER BY t.priority DESC, t.created_at, t.rowid LIMIT ?2`, status, orDefault(limit))
		for i := range list {
			if err == nil {
				list[i].Parents, err = all(t, scanString, "SELECT parent_id FROM task_links WHERE child_id = ? ORDER BY rowid", list[i].ID)
			}
		}
		return list, err
	})
}

// CreateTask creates a task; the second value says that it is new. The same idempotency key returns the task that has
// it, unless that is archived. A task is ready unless a parent is not done.
func (b *Board) CreateTask(ctx context.Context, n NewTask) (Task, bool, error) {
	n.Title = strings.TrimSpace(valid(n.Title))
	n.Assignee = strings.ToLower(strings.TrimSpace(n.Assignee))
	if n.Title == "" {
		return Task{}, false, fmt.Errorf("%w: a task needs a title", ErrInvalid)
	}
	type created struct {
		task Task
		is   bool
	}
	c, err := write(ctx, b.database, func(t *tx) (created, error) {
		id, is, err := b.create(t, n)
		if err != nil {
			return created{}, err
		}
		if n.Subscribe != nil {
			sub := *n.Subscribe
			sub.TaskID = id
			if err := b.subscribe(t, sub); err != nil {
				return created{}, err
			}
		}
		k, err := b.task(t, id)
		return created{k, is}, err
	})
	return c.task, c.is, err
}

func (b *Board) create(t *tx, n NewTask) (id string, created bool, err error) {
	if n.IdempotencyKey != "" {
		err := t.get("SELECT id FROM tasks WHERE idempotency_key = ? AND status <> 'archived' ORDER BY created_at DESC LIMIT 1",
			[]any{n.IdempotencyKey}, &id)
		if !errors.Is(err, ErrNotFound) {
			return id, false, err
		}
	}
	status, tenant, err := b.fromParents(t, n.Parents)
	if err != nil {
		return "", false, err
	}
	id = "t_" + randomHex(4)
	now := b.now().Unix()
	if _, err := t.run(`INSERT INTO tasks(id, title, body, assignee, status, priority, created_by, created_at, tenant, idempotency_key, session_id)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, id, n.Title, text(n.Body), text(n.Assignee), status, n.Priority, text(n.CreatedBy),
		now, text(tenant), text(n.IdempotencyKey), text(n.SessionID)); err != nil {
		return "", false, err
	}
	for _, p := range n.Parents {
		if _, err := t.run("INSERT OR IGNORE INTO task_links(parent_id, child_id) VALUES(?, ?)", p, id); err != nil {
			return "", false, err
		}
	}
	parents := n.Parents
	if parents == nil {
		parents = []string{}
	}
	return id, true, b.event(t, id, nil, "created", payload{
		"assignee": text(n.Assignee), "status": status, "parents": parents, "tenant": text(tenant),
		"branch_name": nil, "skills": nil, "goal_mode": nil})
}

// fromParents returns the first status of a task with these parents, and the tenant it takes from them.
func (b *Board) fromParents(t *tx, parents []string) (status, tenant string, err error) {
	status = taskReady
	var missing []string
	for _, p := range parents {
		k, err := one(t, b.scanTask, taskColumns+" WHERE t.id = ?", p)
		switch {
		case errors.Is(err, ErrNotFound):
			missing = append(missing, p)
		case err != nil:
			return "", "", err
		case k.Status != taskDone && k.Status != taskArchived:
			status = taskTodo
		}
		if tenant == "" {
			tenant = k.Tenant
		}
	}
	if missing != nil {
		return "", "", fmt.Errorf("%w: unknown parent task(s): %s", ErrInvalid, strings.Join(missing, ", "))
	}
	return status, tenant, nil
}
