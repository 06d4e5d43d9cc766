package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

// A writer is an agent worker that asks no model: the message of each turn is a load, which it writes as steps of the
// turn, one a call. What it reached is the turn's reply.
type writer struct {
	agentv1.UnimplementedAgentServer
	host *workers.Host
}

var _ workers.Role = (*writer)(nil)

func (w *writer) Register(s *grpc.Server) { agentv1.RegisterAgentServer(s, w) }

func (w *writer) Start(_ context.Context, host *workers.Host, _ json.RawMessage) error {
	w.host = host
	return nil
}

func (w *writer) Drain(context.Context) int { return 0 }

func (w *writer) Close() {}

func (w *writer) Run(r *agentv1.RunRequest, stream grpc.ServerStreamingServer[agentv1.RunEvent]) error {
	ctx := stream.Context()
	l, err := w.load(ctx, r)
	if err != nil {
		return err
	}
	seed := fnv.New64()
	_, _ = io.WriteString(seed, r.TurnId)
	seq := uint32(0)
	result, err := json.Marshal(l.run(seed.Sum64(), func(_ int, text string) error {
		seq++
		_, err := w.host.Turns.Append(ctx, &hostv1.AppendRequest{TurnId: r.TurnId, Fence: r.Fence, Steps: []*turnv1.Message{
			{Seq: seq, Role: "assistant", Content: text},
		}})
		return err
	}))
	if err != nil {
		return err
	}
	_, err = w.host.Turns.Finish(ctx, &hostv1.FinishRequest{TurnId: r.TurnId, Fence: r.Fence, Outcome: turnv1.Outcome_OUTCOME_COMPLETED,
		Reply: &turnv1.Message{Seq: seq + 1, Role: "assistant", Content: string(result)}})
	return err
}

// load reads the message of a turn, which is the last of its conversation.
func (w *writer) load(ctx context.Context, r *agentv1.RunRequest) (l load, err error) {
	messages, err := w.host.Turns.Load(ctx, &hostv1.LoadRequest{TurnId: r.TurnId, Fence: r.Fence})
	if err != nil {
		return l, err
	}
	text := ""
	for {
		m, err := messages.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return l, err
		}
		for _, m := range m.Messages {
			text = m.Content
		}
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return l, fmt.Errorf("%w: message %q is no load: %w", ipc.ErrInvalid, text, err)
	}
	return l, nil
}
