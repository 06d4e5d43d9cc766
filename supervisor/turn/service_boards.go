package turn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// defaultList is the length of a list for which none is asked.
const defaultList = 100

type boardsService struct {
	hostv1.UnimplementedBoardsServer
	hub *Hub
}

// RegisterBoards adds the boards alone, for the operator's socket.
func (h *Hub) RegisterBoards(s grpc.ServiceRegistrar) {
	hostv1.RegisterBoardsServer(s, &boardsService{hub: h})
}

// board opens a board by name, "" being the default one.
func (s *boardsService) board(slug string) (Board, error) {
	if err := checkName("board", slug); err != nil {
		return nil, err
	}
	if s.hub.cfg.Boards == nil {
		return nil, fmt.Errorf("board %q: %w: there are no boards", slug, ipc.ErrNotFound)
	}
	b, err := s.hub.cfg.Boards(slug)
	return b, wrap(err, "board %q", slug)
}

func (s *boardsService) CreateTask(ctx context.Context, r *hostv1.CreateTaskRequest) (*hostv1.Task, error) {
	err := errors.Join(
		checkID("title", oneLine(r.Title, maxID)), checkText("title", r.Title, maxTitle), checkText("body", r.Body, maxText),
		checkName("assignee", r.Assignee), checkName("created_by", r.CreatedBy), checkName("idempotency_key", r.IdempotencyKey),
		checkName("session_id", r.SessionId),
	)
	for _, p := range r.Parents {
		err = errors.Join(err, checkID("parents", p))
	}
	n := store.NewTask{
		Title: r.Title, Body: r.Body, Assignee: r.Assignee, CreatedBy: r.CreatedBy, SessionID: r.SessionId,
		Priority: int(r.Priority), IdempotencyKey: r.IdempotencyKey, Parents: r.Parents,
	}
	if r.Subscribe != nil {
		sub, serr := subscription(r.Subscribe, false)
		n.Subscribe, err = &sub, errors.Join(err, serr, s.hub.reachable(sub.Platform))
	}
	if len(r.Parents) > maxSteps {
		err = errors.Join(err, invalid("parents", "%d of them, at most %d are taken", len(r.Parents), maxSteps))
	}
	if err != nil {
		return nil, err
	}
	b, err := s.board(r.Board)
	if err != nil {
		return nil, err
	}
	t, _, err := b.CreateTask(ctx, n)
	if err != nil {
		return nil, wrap(err, "create task %q", oneLine(r.Title, 80))
	}
	return taskToProto(t), nil
}

func (s *boardsService) ListTasks(ctx context.Context, r *hostv1.ListTasksRequest) (*hostv1.ListTasksResponse, error) {
	if err := checkName("status", r.Status); err != nil {
		return nil, err
	}
	b, err := s.board(r.Board)
	if err != nil {
		return nil, err
	}
	tasks, err := b.Tasks(ctx, r.Status, listLimit(r.Limit))
	if err != nil {
		return nil, wrap(err, "list tasks")
	}
	out := &hostv1.ListTasksResponse{}
	for _, t := range tasks {
		out.Tasks = append(out.Tasks, taskToProto(t))
	}
	return out, nil
}

func listLimit(asked uint32) int {
	if asked == 0 {
		return defaultList
	}
	return int(min(asked, maxList))
}

func (s *boardsService) GetTask(ctx context.Context, r *hostv1.GetTaskRequest) (*hostv1.Task, error) {
	if err := checkID("id", r.Id); err != nil {
		return nil, err
	}
	b, err := s.board(r.Board)
	if err != nil {
		return nil, err
	}
	t, err := b.Task(ctx, r.Id)
	if err != nil {
		return nil, kinded(err)
	}
	return taskToProto(t), nil
}

func (s *boardsService) SetStatus(ctx context.Context, r *hostv1.SetStatusRequest) (*hostv1.Task, error) {
	err := errors.Join(checkID("id", r.Id), checkID("status", r.Status), checkText("summary", r.Summary, maxText))
	if err != nil {
		return nil, err
	}
	b, err := s.board(r.Board)
	if err != nil {
		return nil, err
	}
	t, err := b.SetStatus(ctx, r.Id, r.Status, r.Summary)
	if err != nil {
		return nil, kinded(err)
	}
	return taskToProto(t), nil
}

func (s *boardsService) Subscribe(ctx context.Context, r *hostv1.SubscribeRequest) (*hostv1.SubscribeResponse, error) {
	sub, err := subscription(r.Subscription, true)
	if err = errors.Join(err, s.hub.reachable(sub.Platform)); err != nil {
		return nil, err
	}
	b, err := s.board(r.Subscription.Board)
	if err != nil {
		return nil, err
	}
	if err := b.Subscribe(ctx, sub); err != nil {
		return nil, kinded(err)
	}
	return &hostv1.SubscribeResponse{}, nil
}

// reachable refuses a platform that no notice would ever be sent to.
func (h *Hub) reachable(platform string) error {
	known := h.platforms()
	if known == nil || platform == "" || slices.Contains(known, platform) {
		return nil
	}
	return invalid("platform", "%q is none of this supervisor, which has %s", cut(platform, maxID), strings.Join(known, ", "))
}

// subscription checks where events are to be told. A task that is being created has no id yet.
func subscription(p *hostv1.Subscription, withTask bool) (store.Subscription, error) {
	if p == nil {
		return store.Subscription{}, invalid("subscription", "it is missing")
	}
	err := errors.Join(
		checkID("platform", p.Platform), checkID("chat_id", p.ChatId), checkName("thread_id", p.ThreadId), checkName("user_id", p.UserId),
	)
	if withTask {
		err = errors.Join(err, checkID("task_id", p.TaskId))
	}
	return store.Subscription{TaskID: p.TaskId, Platform: p.Platform, ChatID: p.ChatId, ThreadID: p.ThreadId, UserID: p.UserId}, err
}

// Unseen collects from all boards. A board that cannot be read does not keep the others from being told.
func (s *boardsService) Unseen(ctx context.Context, r *hostv1.UnseenRequest) (*hostv1.UnseenResponse, error) {
	slugs := []string{""}
	if s.hub.cfg.BoardNames != nil {
		var err error
		if slugs, err = s.hub.cfg.BoardNames(); err != nil {
			return nil, wrap(err, "list boards")
		}
	}
	out, limit, failed := &hostv1.UnseenResponse{}, listLimit(r.Limit), error(nil)
	for _, slug := range slugs {
		left := limit - len(out.Items)
		if left <= 0 {
			break
		}
		items, err := s.unseen(ctx, slug, left)
		failed = errors.Join(failed, err)
		out.Items = append(out.Items, items...)
	}
	if len(out.Items) == 0 && failed != nil {
		return nil, failed
	}
	return out, nil
}

func (s *boardsService) unseen(ctx context.Context, slug string, limit int) ([]*hostv1.Unseen, error) {
	b, err := s.board(slug)
	if err != nil {
		return nil, err
	}
	rows, err := b.Unseen(ctx, limit)
	if err != nil {
		return nil, wrap(err, "unseen events of board %q", slug)
	}
	var items []*hostv1.Unseen
	for _, u := range rows {
		items = append(items, &hostv1.Unseen{
			Subscription: &hostv1.Subscription{
				Board: slug, TaskId: u.Subscription.TaskID, Platform: u.Subscription.Platform, ChatId: u.Subscription.ChatID,
				ThreadId: u.Subscription.ThreadID, UserId: u.Subscription.UserID,
			},
			Task: taskToProto(u.Task), EventId: u.EventID, Kind: u.Kind, PayloadJson: u.Payload, CreatedAt: u.CreatedAt,
		})
	}
	return items, nil
}

// Notify stores the notice first and moves the cursor after. A crash between the two repeats the notice under the same
// key, which is a duplicate.
func (s *boardsService) Notify(ctx context.Context, r *hostv1.NotifyRequest) (*hostv1.NotifyResponse, error) {
	sub, err := subscription(r.Subscription, true)
	if err = errors.Join(err, checkText("text", r.Text, maxText)); err != nil {
		return nil, err
	}
	if r.EventId <= 0 {
		return nil, invalid("event_id", "%d is none", r.EventId)
	}
	b, err := s.board(r.Subscription.Board)
	if err != nil {
		return nil, err
	}
	out := &hostv1.NotifyResponse{}
	if r.Text != "" && s.told(sub, r) {
		_, out.Duplicate, err = s.hub.store.PutOutbox(ctx, store.OutboxRow{
			Key: noticeKey(r.Subscription, r.EventId), Platform: sub.Platform, ChatID: sub.ChatID, ThreadID: sub.ThreadID, Text: r.Text,
		})
		if err != nil {
			return nil, wrap(err, "store notice of task %s", sub.TaskID)
		}
		s.hub.outbox.wake()
	}
	if err := b.Advance(ctx, sub, r.EventId); err != nil {
		return nil, wrap(err, "advance subscription to task %s", sub.TaskID)
	}
	return out, nil
}

// told says whether a platform has a way to show a notice. One where clients only ask has none but the terminal's.
func (s *boardsService) told(sub store.Subscription, r *hostv1.NotifyRequest) bool {
	if sub.Platform == PlatformTerminal || s.hub.pushed(sub.Platform) {
		return true
	}
	s.hub.event("notice_dropped", "", "", "platform "+sub.Platform+" shows no notices",
		map[string]string{"task": sub.TaskID, "chat": sub.ChatID, "event": fmt.Sprint(r.EventId)})
	return false
}

// noticeKey names a notice. Parts are escaped, so that no two different notices have one key.
func noticeKey(s *hostv1.Subscription, event int64) string {
	parts := []string{"kanban"}
	for _, p := range []string{s.Board, s.TaskId, s.Platform, s.ChatId, s.ThreadId} {
		parts = append(parts, url.PathEscape(p))
	}
	return strings.Join(append(parts, fmt.Sprint(event)), "/")
}

func taskToProto(t store.Task) *hostv1.Task {
	return &hostv1.Task{
		Id: t.ID, Board: t.Board, Title: t.Title, Body: t.Body, Assignee: t.Assignee, Status: t.Status, Priority: int32(t.Priority),
		CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt, StartedAt: t.StartedAt, CompletedAt: t.CompletedAt, Result: t.Result,
		Tenant: t.Tenant, Parents: t.Parents,
	}
}
