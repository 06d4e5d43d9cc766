package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

// lifecycleService lets a chat ask for a restart.
type lifecycleService struct {
	hostv1.UnimplementedLifecycleServer
	supervisor *supervisor
}

// notManaged is the answer where an end would be for good.
const notManaged = "a restart: %w: no service manager started this supervisor, so it would stay down. On the machine, end it with " +
	"`hermes-supervisor ctl stop` (or Ctrl-C) and start it with `hermes-supervisor run`; `hermes-supervisor systemd --help` makes a service of it"

// Restart stores the wish, so that the chat is told afterwards and the same message restarts once, and begins the end.
func (l *lifecycleService) Restart(ctx context.Context, r *hostv1.RestartRequest) (*hostv1.RestartResponse, error) {
	s := l.supervisor
	id, _ := ipc.IdentityFrom(ctx)
	if id.Platform == "" || r.ChatId == "" || r.MessageId == "" {
		return nil, fmt.Errorf("a restart: %w: it is asked for by a message of a chat", ipc.ErrInvalid)
	}
	if !systemd.Manages() {
		return nil, fmt.Errorf(notManaged, ipc.ErrRefused)
	}
	counts, err := s.store.Counts(ctx)
	if err != nil {
		return nil, fmt.Errorf("a restart: %w", err)
	}
	resp := &hostv1.RestartResponse{Running: uint32(counts.Running), Queued: uint32(counts.Queued), DrainMs: s.config().Supervisor.DrainTimeout.Milliseconds()}
	resp.Duplicate, err = s.store.RequestRestart(ctx, store.RestartRequest{
		Platform: id.Platform, ChatID: r.ChatId, ThreadID: r.ThreadId, UserID: r.UserId, MessageID: r.MessageId,
	})
	if err != nil {
		return nil, fmt.Errorf("a restart: %w", err)
	}
	if resp.Duplicate {
		return resp, nil
	}
	s.journal.Record(store.Event{Kind: "restart_asked", Worker: id.Worker, Message: "asked for in a chat",
		Fields: map[string]string{"platform": id.Platform, "chat": r.ChatId, "user": r.UserId}})
	s.again.Store(true)
	s.end("a chat of " + id.Platform + ", for a restart") // the answer is on its way long before the gateway is stopped: the drain comes first
	return resp, nil
}

// tellOfRestart owes those who asked for a restart the word that it has happened.
func (s *supervisor) tellOfRestart(ctx context.Context) {
	n, err := s.store.TellRestarts(ctx, "♻ I have been restarted and am back.")
	if err != nil {
		s.log.Warn("a chat that asked for a restart cannot be told yet", "error", err)
	} else if n > 0 {
		s.log.Info("restarted, as a chat had asked", "chats", n)
	}
}

func unixTime(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}
