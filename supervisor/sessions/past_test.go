package sessions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sessions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func home(t *testing.T) *store.State {
	t.Helper()
	return storetest.StateAt(t, storetest.Fixture(t, "hermes-home-2026-07/state.db"), store.Options{})
}

func TestPastConversationsAreDiscovered(t *testing.T) {
	s := home(t)
	p := sessions.NewPast(s)
	r, err := p.Discover(t.Context(), &hostv1.DiscoverRequest{Query: "invoice", Limit: 10})
	if err != nil || len(r.Found) != 10 || r.Partial || r.IndexPercent != 100 {
		t.Fatalf("%d found, %v", len(r.GetFound()), err)
	}
	seen, cron := map[string]bool{}, false
	for _, d := range r.Found {
		if seen[d.Session.Id] {
			t.Errorf("%s comes twice", d.Session.Id)
		}
		seen[d.Session.Id] = true
		if cron && d.Session.Source != "cron" {
			t.Error("a person's conversation comes after what ran by itself")
		}
		cron = d.Session.Source == "cron"
		if !strings.Contains(d.Snippet, ">>>invoice<<<") || len(d.Window) == 0 || len(d.Window) > 11 || len(d.First) > 3 || len(d.Last) > 3 {
			t.Errorf("%v", d)
		}
		for _, m := range d.Window {
			if m.Role != "user" && m.Role != "assistant" {
				t.Errorf("a message of %s", m.Role)
			}
		}
	}
	current := r.Found[0].Session.Id
	r, err = p.Discover(t.Context(), &hostv1.DiscoverRequest{Query: "invoice", Limit: 10, CurrentSession: current})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Found {
		if d.Session.Id == current {
			t.Error("the conversation that asks is found")
		}
	}
}

// disturbed is a store that other things happen to between two calls.
type disturbed struct {
	*store.State
	before func(call, session string) error
}

func (d disturbed) Lineage(ctx context.Context, id string) (string, error) {
	if err := d.before("lineage", id); err != nil {
		return "", err
	}
	return d.State.Lineage(ctx, id)
}

func (d disturbed) FindSession(ctx context.Context, name string) (store.SessionInfo, error) {
	if err := d.before("find", name); err != nil {
		return store.SessionInfo{}, err
	}
	return d.State.FindSession(ctx, name)
}

func (d disturbed) Around(ctx context.Context, session string, message int64, window int, roles []string) (store.Past, error) {
	if err := d.before("around", session); err != nil {
		return store.Past{}, err
	}
	return d.State.Around(ctx, session, message, window, roles)
}

func (d disturbed) Ends(ctx context.Context, session string, first, last int, roles []string) ([]store.Message, []store.Message, int, error) {
	if err := d.before("ends", session); err != nil {
		return nil, nil, 0, err
	}
	return d.State.Ends(ctx, session, first, last, roles)
}

func discovered(t *testing.T, s interface {
	Discover(context.Context, *hostv1.DiscoverRequest) (*hostv1.DiscoverResponse, error)
}) (ids []string) {
	t.Helper()
	r, err := s.Discover(t.Context(), &hostv1.DiscoverRequest{Query: "invoice", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Found {
		ids = append(ids, d.Session.Id)
	}
	return ids
}

func TestASessionThatIsDeletedDuringASearchCostsNothingElse(t *testing.T) {
	for _, at := range []string{"lineage", "find", "around", "ends"} {
		t.Run("before "+at, func(t *testing.T) {
			s := home(t)
			before := discovered(t, sessions.NewPast(s))
			gone, deleted := before[2], false
			after := discovered(t, sessions.NewPast(disturbed{s, func(call, session string) error {
				if call == at && session == gone && !deleted {
					deleted = true
					_, err := s.DeleteSession(t.Context(), gone)
					return err
				}
				return nil
			}}))
			if !deleted || len(after) != len(before) || !slices.Equal(after[:2], before[:2]) || at != "ends" && slices.Contains(after, gone) {
				t.Errorf("found %v, before %v", after, before)
			}
		})
	}
}

// of is a store in which nothing is found but in one session.
type of struct {
	disturbed
	session string
}

func (o of) Search(ctx context.Context, q store.Search) (store.Found, error) {
	found, err := o.State.Search(ctx, q)
	found.Hits = slices.DeleteFunc(found.Hits, func(h store.Hit) bool { return h.SessionID != o.session })
	return found, err
}

func TestAMessageThatIsGoneHidesNotTheRestOfItsConversation(t *testing.T) {
	s := home(t)
	session, looked := discovered(t, sessions.NewPast(s))[0], 0
	found := discovered(t, sessions.NewPast(of{disturbed{s, func(call, _ string) error {
		if call != "around" {
			return nil
		}
		if looked++; looked == 1 {
			return store.ErrNotFound
		}
		return nil
	}}, session}))
	if looked != 2 || !slices.Equal(found, []string{session}) {
		t.Errorf("looked %d times and found %v, want %s by its second hit", looked, found, session)
	}
}

func TestASearchThatCannotReadTheStoreFails(t *testing.T) {
	for _, at := range []string{"lineage", "find", "around", "ends"} {
		p := sessions.NewPast(disturbed{home(t), func(call, _ string) error {
			if call == at {
				return store.ErrBusy
			}
			return nil
		}})
		if _, err := p.Discover(t.Context(), &hostv1.DiscoverRequest{Query: "invoice"}); !errors.Is(err, ipc.ErrBusy) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestPastConversationsAreScrolledAndRead(t *testing.T) {
	p := sessions.NewPast(home(t))
	r, err := p.Read(t.Context(), &hostv1.ReadRequest{Session: "20260609_101295"})
	if err != nil || len(r.First) != 20 || r.Between != 0 && len(r.Last) != 10 {
		t.Fatal(r, err)
	}
	middle := r.First[9].Id
	w, err := p.Scroll(t.Context(), &hostv1.ScrollRequest{Session: r.Session.Id, Around: middle, Window: 2})
	if err != nil || len(w.Messages) != 5 || w.Messages[2].Id != middle || w.Before != 7 || w.After == 0 {
		t.Fatal(w, err)
	}
	b, err := p.Browse(t.Context(), &hostv1.BrowseRequest{Limit: 3, CurrentSession: r.Session.Id})
	if err != nil || len(b.Sessions) != 3 {
		t.Fatal(b, err)
	}
	for name, call := range map[string]func() error{
		"no query": func() error { _, err := p.Discover(t.Context(), &hostv1.DiscoverRequest{Query: " "}); return err },
		"a role": func() error {
			_, err := p.Read(t.Context(), &hostv1.ReadRequest{Session: r.Session.Id, Roles: []string{"king"}})
			return err
		},
	} {
		if err := call(); !errors.Is(err, ipc.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.Scroll(t.Context(), &hostv1.ScrollRequest{Session: r.Session.Id, Around: 1 << 40}); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("a message that is not there: %v", err)
	}
}

func TestPruneRefusesWhileOthersHaveTheFileOpen(t *testing.T) {
	held := fmt.Errorf("another process is using it\n  PID 41230 (hermes gateway run): state.db")
	s := sessions.New(home(t), func() error { return held })
	_, err := s.Prune(t.Context(), &controlv1.ChangeSessionsRequest{})
	if !errors.Is(err, ipc.ErrRefused) || !strings.Contains(err.Error(), "PID 41230 (hermes gateway run): state.db") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("prune says %v", err)
	}
	for _, r := range []*controlv1.ChangeSessionsRequest{{DryRun: true}, {Force: true}} {
		if _, err := s.Prune(t.Context(), r); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
}
