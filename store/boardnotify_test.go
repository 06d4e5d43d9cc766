package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func unseen(t *testing.T, b *store.Board, limit int) (list []store.Unseen, kinds []string) {
	t.Helper()
	list, err := b.Unseen(context.Background(), limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list {
		kinds = append(kinds, u.Subscription.ChatID+" "+u.Kind)
	}
	return list, kinds
}

func TestASubscriberHearsWhatHappensFromThenOn(t *testing.T) {
	ctx := context.Background()
	b, _ := board(t)
	k := create(t, b, store.NewTask{Title: "task"})
	set(t, b, k.ID, "blocked", "before")
	sub := store.Subscription{TaskID: k.ID, Platform: "telegram", ChatID: "1", ThreadID: "2", UserID: "u"}
	for range 2 { // the second changes nothing
		if err := b.Subscribe(ctx, sub); err != nil {
			t.Fatal(err)
		}
	}
	if _, kinds := unseen(t, b, 0); kinds != nil {
		t.Errorf("old events are told: %v", kinds)
	}
	set(t, b, k.ID, "ready", "")
	set(t, b, k.ID, "done", "result")
	list, kinds := unseen(t, b, 0)
	if !slices.Equal(kinds, []string{"1 unblocked", "1 completed"}) {
		t.Fatalf("unseen are %v", kinds)
	}
	if u := list[1]; u.Subscription != sub || u.Task.ID != k.ID || u.Task.Status != "done" || u.Payload != `{"result_len":6,"summary":"result"}` || u.CreatedAt == 0 {
		t.Errorf("%+v", u)
	}
	if err := b.Advance(ctx, sub, list[0].EventID); err != nil {
		t.Fatal(err)
	}
	if _, kinds := unseen(t, b, 0); !slices.Equal(kinds, []string{"1 completed"}) {
		t.Errorf("unseen are %v", kinds)
	}
	for _, id := range []int64{list[1].EventID, list[0].EventID, 0} { // never back
		if err := b.Advance(ctx, sub, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, kinds := unseen(t, b, 0); kinds != nil {
		t.Errorf("unseen are %v", kinds)
	}
	sub.ChatID = "nobody"
	if err := b.Advance(ctx, sub, 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown subscription: %v", err)
	}
}

func TestATaskCanBeCreatedWithItsSubscriber(t *testing.T) {
	b, path := board(t)
	k := create(t, b, store.NewTask{Title: "task", Subscribe: &store.Subscription{Platform: "terminal", ChatID: "1"}})
	if _, kinds := unseen(t, b, 0); kinds != nil {
		t.Errorf("unseen are %v", kinds)
	}
	set(t, b, k.ID, "done", "")
	if _, kinds := unseen(t, b, 0); !slices.Equal(kinds, []string{"1 completed"}) {
		t.Errorf("unseen are %v", kinds)
	}
	_, _, err := b.CreateTask(context.Background(), store.NewTask{Title: "half", Subscribe: &store.Subscription{Platform: "terminal"}})
	if !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a subscription without a chat: %v", err)
	}
	if got := storetest.Query(t, path, "SELECT title FROM tasks"); !slices.Equal(got, []string{"task"}) {
		t.Errorf("tasks are %v", got)
	}
	if err := b.Subscribe(context.Background(), store.Subscription{TaskID: "t_none", Platform: "p", ChatID: "1"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown task: %v", err)
	}
}

// A chat that is never told anything must not keep the others waiting.
func TestAStuckSubscriptionHoldsNobodyUp(t *testing.T) {
	ctx := context.Background()
	b, _ := board(t)
	k := create(t, b, store.NewTask{Title: "task", Subscribe: &store.Subscription{Platform: "gone", ChatID: "stuck"}})
	for range 3 * store.UnseenEach {
		set(t, b, k.ID, "blocked", "")
		set(t, b, k.ID, "ready", "")
	}
	if list, _ := unseen(t, b, 1000); len(list) != store.UnseenEach {
		t.Errorf("%d events of one subscription", len(list))
	}
	if err := b.Subscribe(ctx, store.Subscription{TaskID: k.ID, Platform: "telegram", ChatID: "well"}); err != nil {
		t.Fatal(err)
	}
	set(t, b, k.ID, "done", "")
	list, kinds := unseen(t, b, 2)
	if !slices.Contains(kinds, "well completed") {
		t.Errorf("of two places none is for the other chat: %v", kinds)
	}
	if !slices.IsSortedFunc(list, func(a, b store.Unseen) int { return int(a.EventID - b.EventID) }) {
		t.Errorf("not the oldest first: %v", kinds)
	}
}

func TestHermesSubscriptionsGoOn(t *testing.T) {
	ctx := context.Background()
	path := storetest.Fixture(t, "hermes-home-2026-07/kanban.db")
	b := storetest.BoardAt(t, path, "default", store.Options{})
	list, kinds := unseen(t, b, 0)
	want := storetest.Query(t, path, `SELECT s.chat_id || ' ' || e.kind FROM kanban_notify_subs AS s JOIN task_events AS e ON e.task_id = s.task_id AND e.id > s.last_event_id
		WHERE e.kind IN ('completed', 'blocked') ORDER BY e.id`)
	if !slices.Equal(kinds, want) {
		t.Errorf("unseen are %v, not %v", kinds, want)
	}
	for _, u := range list {
		if u.Task.Board != "default" || u.Task.Title == "" {
			t.Errorf("%+v", u)
		}
		if err := b.Advance(ctx, u.Subscription, u.EventID); err != nil {
			t.Fatal(err)
		}
	}
	if _, kinds := unseen(t, b, 0); kinds != nil {
		t.Errorf("unseen are %v", kinds)
	}
	if _, err := storetest.Exec(path, "DELETE FROM tasks WHERE id = ?", list[0].Task.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Exec(path, "UPDATE kanban_notify_subs SET last_event_id = 0"); err != nil {
		t.Fatal(err)
	}
	again, _ := unseen(t, b, 0)
	for _, u := range again {
		if u.Task.ID == list[0].Task.ID {
			t.Error("an event of a deleted task is told")
		}
	}
	if len(again) == 0 {
		t.Error(fmt.Sprint("a deleted task silences the others: ", len(again)))
	}
}
