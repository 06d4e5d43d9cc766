package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	// adapterLook is how often each adapter is asked how it does, at the moment at which idle workers are asked whether they
	// live. A gateway that says that its state has changed is asked at once.
	adapterLook = 20 * time.Second
	// adapterAnswer is how long it may take; Status asks nobody.
	adapterAnswer = time.Second
	// conflictPatience is how long a conflict may last before the home chat hears of it: the one of a restart, with the
	// platform still holding the last poll, ends by itself within a minute.
	conflictPatience = 2 * time.Minute
	// conflictPause is between two words of a conflict that comes and goes.
	conflictPause = time.Hour

	adapterDown     = "down"
	adapterConflict = "conflict"
)

// An adapterWatch knows how each chat platform is reached. Gateways tell the changes themselves, and the journal has the end of
// each worker: all that the watch adds to it is a gateway that is there and does not answer. It is safe for concurrent use.
type adapterWatch struct {
	now    func() time.Time
	record func(store.Event)
	notice func(ctx context.Context, r store.OutboxRow, kind string, pause time.Duration) (bool, error)
	home   func(platform string) string // chat for such words, "" if none

	changed chan struct{} // rings when a gateway has something to say

	mu   sync.Mutex
	list map[string]*adapterState // by platform
}

// An adapterState is what is known of one adapter. adapterWatch.mu guards it.
type adapterState struct {
	worker string
	client adapterv1.AdapterClient // nil while its worker is down
	last   *adapterv1.StatusResponse
	since  time.Time
	told   bool                    // the home chat knows of this conflict
	silent adapterv1.AdapterClient // the one whose silence is in the journal, nil if it has ended
}

func newAdapterWatch(s *supervisor) *adapterWatch {
	w := &adapterWatch{now: s.now, record: s.journal.Record, notice: s.store.PutNotice,
		changed: make(chan struct{}, 1), list: map[string]*adapterState{}}
	w.home = func(platform string) string {
		chat, _ := s.config().Adapters[platform].Settings["home_chat"].(string)
		return chat
	}
	for _, platform := range s.config().EnabledAdapters() {
		w.list[platform] = &adapterState{worker: "gateway-" + platform, since: s.now()}
	}
	return w
}

// attach notes the connection of a gateway; detach notes that it is gone.
func (w *adapterWatch) attach(id ipc.Identity, conn grpc.ClientConnInterface) (detach func()) {
	if id.Role != ipc.RoleGateway || id.Platform == "" {
		return func() {}
	}
	client := adapterv1.NewAdapterClient(conn)
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.list[id.Platform]
	if a == nil {
		a = &adapterState{since: w.now()}
		w.list[id.Platform] = a
	}
	a.worker, a.client = id.Worker, client
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.client == client {
			a.client = nil
		}
	}
}

// keep forgets the adapters that are on no longer.
func (w *adapterWatch) keep(platforms []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.list, func(platform string, _ *adapterState) bool { return !slices.Contains(platforms, platform) })
}

// run looks until ctx ends.
func (w *adapterWatch) run(ctx context.Context) {
	tick := time.NewTimer(untilWhole(adapterLook))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(ctx)
			tick.Reset(untilWhole(adapterLook))
		case <-w.changed:
			w.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// heard is told what a worker has published: the state of an adapter may be in it.
func (w *adapterWatch) heard(kind string) {
	if !strings.HasPrefix(kind, "adapter_") {
		return
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// look asks every adapter side by side.
func (w *adapterWatch) look(ctx context.Context) {
	w.mu.Lock()
	asked := map[string]adapterv1.AdapterClient{}
	for platform, a := range w.list {
		asked[platform] = a.client
	}
	w.mu.Unlock()
	var answers sync.WaitGroup
	for platform, client := range asked {
		answers.Go(func() {
			r, err := ask(ctx, client)
			w.note(ctx, platform, client, r, err)
		})
	}
	answers.Wait()
}

// ask returns the state of an adapter, adapterDown where there is no answer, and why there is none.
func ask(ctx context.Context, client adapterv1.AdapterClient) (*adapterv1.StatusResponse, error) {
	if client == nil {
		return &adapterv1.StatusResponse{State: adapterDown, Detail: "its worker is not there"}, ipc.ErrGone
	}
	ctx, cancel := context.WithTimeout(ctx, adapterAnswer)
	defer cancel()
	r, err := client.Status(ctx, &adapterv1.StatusRequest{})
	if err != nil {
		return &adapterv1.StatusResponse{State: adapterDown, Detail: "it does not answer: " + err.Error()}, err
	}
	return r, nil
}

// note takes an answer over, and says what is new in it. failed is why there was none.
func (w *adapterWatch) note(ctx context.Context, platform string, client adapterv1.AdapterClient, r *adapterv1.StatusResponse, failed error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	a := w.list[platform]
	if a == nil || a.client != client {
		w.mu.Unlock()
		return // of a worker that has been replaced
	}
	was := a.last.GetState()
	if r.State == adapterDown && a.last != nil {
		r.LastReceiveMs = a.last.LastReceiveMs
	}
	a.last = r
	if was != r.State {
		a.since, a.told = w.now(), false
	}
	word := a.heard(client, r, failed)
	worker, tell := a.worker, r.State == adapterConflict && !a.told && w.now().Sub(a.since) >= conflictPatience
	a.told = a.told || tell
	w.mu.Unlock()
	if word != "" {
		w.record(store.Event{Kind: "adapter_state", Worker: worker, Message: platform + ": " + word,
			Fields: map[string]string{"platform": platform, "state": r.State, "before": was, "detail": cutTo(r.Detail, maxEventText/2)}})
	}
	if tell {
		w.tellHome(ctx, platform, r.Detail)
	}
}

// heard returns what the journal has to be told of an answer, or of none: that a gateway is there and does not answer, and that
// the same one answers again. The end of a process is told by who watches it. The caller holds adapterWatch.mu.
func (a *adapterState) heard(client adapterv1.AdapterClient, r *adapterv1.StatusResponse, failed error) string {
	silentBefore := a.silent != nil && a.silent == client
	switch {
	case failed == nil:
		a.silent = nil
		if silentBefore {
			return "answers again, " + r.State
		}
	case !silentBefore && !errors.Is(failed, ipc.ErrGone) && !errors.Is(failed, ipc.ErrCancelled):
		a.silent = client
		if errors.Is(failed, ipc.ErrTimeout) {
			return fmt.Sprintf("does not answer within %v", adapterAnswer)
		}
		return "does not answer: " + cutTo(failed.Error(), maxEventText/2)
	}
	return ""
}

func (w *adapterWatch) tellHome(ctx context.Context, platform, detail string) {
	chat := w.home(platform)
	if chat == "" {
		return
	}
	text := "⚠️ Another program receives the messages of this bot, so I do not see them all. End it, or give it a token of its own."
	if detail != "" {
		text += "\n" + cutTo(detail, maxEventText/2)
	}
	row := store.OutboxRow{Key: fmt.Sprintf("conflict/%s/%d", platform, w.now().UnixNano()), Platform: platform, ChatID: chat, Text: text}
	if _, err := w.notice(ctx, row, adapterConflict, conflictPause); err != nil {
		w.record(store.Event{Kind: "notice_lost", Message: "the home chat of " + platform + " was not told of a conflict: " + err.Error()})
	}
}

// status asks now, and tells of each adapter in the order of their names.
func (w *adapterWatch) status(ctx context.Context) []*controlv1.AdapterStatus {
	w.look(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*controlv1.AdapterStatus
	for platform, a := range w.list {
		s := &controlv1.AdapterStatus{Platform: platform, Worker: a.worker, State: adapterDown, Since: unixTime(a.since)}
		if a.last != nil {
			s.State, s.Detail, s.LastReceive = a.last.State, a.last.Detail, float64(a.last.LastReceiveMs)/1000
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *controlv1.AdapterStatus) int { return strings.Compare(a.Platform, b.Platform) })
	return list
}

// cutTo returns at most n bytes of a text and no half character.
func cutTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
