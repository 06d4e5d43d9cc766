package turn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// agentServer serves Agent by a script.
type agentServer struct {
	agentv1.UnimplementedAgentServer
	proc   *process
	script func(*agentRun) error

	mu          sync.Mutex
	interrupted map[string]chan struct{}
}

// An agentRun is one run of a turn by a scripted agent.
type agentRun struct {
	*process
	req     *agentv1.RunRequest
	ctx     context.Context
	stream  grpc.ServerStreamingServer[agentv1.RunEvent]
	stopped <-chan struct{} // closed by Interrupt
}

// agent starts an agent process. Each run of a turn is one call of script; what it returns ends the stream.
func (r *rig) agent(name string, script func(*agentRun) error) *process {
	r.t.Helper()
	return r.start(ipc.Identity{Worker: name, Role: ipc.RoleAgent}, func(p *process, s *grpc.Server) {
		agentv1.RegisterAgentServer(s, &agentServer{proc: p, script: script, interrupted: map[string]chan struct{}{}})
	})
}

func (a *agentServer) stop(turnID string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.interrupted[turnID] == nil {
		a.interrupted[turnID] = make(chan struct{})
	}
	return a.interrupted[turnID]
}

func (a *agentServer) Run(req *agentv1.RunRequest, stream grpc.ServerStreamingServer[agentv1.RunEvent]) error {
	return a.script(&agentRun{process: a.proc, req: req, ctx: stream.Context(), stream: stream, stopped: a.stop(req.TurnId)})
}

func (a *agentServer) Interrupt(_ context.Context, req *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	c := a.stop(req.TurnId)
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
	return &agentv1.InterruptResponse{Running: true}, nil
}

// die kills the agent's process from within a run.
func (a *agentRun) die() error {
	a.kill()
	return errKilled
}

func (a *agentRun) say(step uint32, text string) {
	_ = a.stream.Send(&agentv1.RunEvent{Event: &agentv1.RunEvent_Text{Text: &turnv1.TextDelta{Seq: step, Text: text}}})
}

func (a *agentRun) active() {
	_ = a.stream.Send(&agentv1.RunEvent{Event: &agentv1.RunEvent_Activity{Activity: &agentv1.Activity{Doing: "thinking"}}})
}

// load returns the session and its conversation.
func (a *agentRun) load() (*hostv1.Session, []*turnv1.Message, error) {
	s, err := a.turns().Load(a.ctx, &hostv1.LoadRequest{TurnId: a.req.TurnId, Fence: a.req.Fence})
	if err != nil {
		return nil, nil, err
	}
	var session *hostv1.Session
	var rows []*turnv1.Message
	for {
		m, err := s.Recv()
		if err == io.EOF {
			return session, rows, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if m.Session != nil {
			session = m.Session
		}
		rows = append(rows, m.Messages...)
	}
}

func (a *agentRun) append(steps ...*turnv1.Message) error {
	_, err := a.turns().Append(a.ctx, &hostv1.AppendRequest{TurnId: a.req.TurnId, Fence: a.req.Fence, Steps: steps})
	return err
}

func (a *agentRun) finish(seq uint32, text string) error {
	_, err := a.turns().Finish(a.ctx, &hostv1.FinishRequest{
		TurnId: a.req.TurnId, Fence: a.req.Fence, Outcome: turnv1.Outcome_OUTCOME_COMPLETED,
		Reply: &turnv1.Message{Role: "assistant", Content: text, Seq: seq, FinishReason: "stop"},
	})
	return err
}

func (a *agentRun) finishWith(reply *turnv1.Message) error {
	_, err := a.turns().Finish(a.ctx, &hostv1.FinishRequest{
		TurnId: a.req.TurnId, Fence: a.req.Fence, Outcome: turnv1.Outcome_OUTCOME_COMPLETED, Reply: reply,
	})
	return err
}

// call makes a tool call and returns its result.
func (a *agentRun) call(id, tool, arguments string, seq uint32) (*toolv1.Result, error) {
	s, err := a.tools().Call(a.ctx, &hostv1.CallRequest{
		TurnId: a.req.TurnId, Fence: a.req.Fence, CallId: id, Tool: tool, ArgumentsJson: arguments, Seq: seq,
	})
	if err != nil {
		return nil, err
	}
	for {
		ev, err := s.Recv()
		if err != nil {
			return nil, err
		}
		if res := ev.GetResult(); res != nil {
			return res, nil
		}
	}
}

// obey is the script of an agent that does what the message says and goes on after the last stored step, as the real
// one does. A message is words: "call:TOOL" asks for one tool call a step, anything else is repeated in the reply.
// crash is asked at every boundary and may kill the agent there.
func obey(crash func(a *agentRun, point string) bool) func(*agentRun) error {
	return func(a *agentRun) error {
		_, rows, err := a.load()
		if err != nil {
			return err
		}
		text, steps := "", map[uint32]*turnv1.Message{}
		for _, m := range rows {
			if m.TurnId == a.req.TurnId {
				steps[m.Seq] = m
			}
		}
		if steps[0] == nil {
			return errors.New("the person's message is not stored")
		}
		seq := uint32(1)
		for i, word := range strings.Fields(steps[0].Content) {
			tool, ok := strings.CutPrefix(word, "call:")
			if !ok {
				text += word + " "
				continue
			}
			result, err := a.step(seq, fmt.Sprintf("c%d", i), tool, steps, crash)
			if err != nil {
				return err
			}
			text += result + " "
			seq += 2
		}
		if crash(a, "before finish") {
			return a.die()
		}
		if err := a.finish(seq, strings.TrimSpace(text)); err != nil {
			return err
		}
		if crash(a, "after finish") {
			return a.die()
		}
		return nil
	}
}

// step makes one tool call with its two messages, unless they are stored.
func (a *agentRun) step(seq uint32, id, tool string, stored map[uint32]*turnv1.Message, crash func(*agentRun, string) bool) (string, error) {
	if stored[seq] == nil {
		if crash(a, "before append") {
			return "", a.die()
		}
		a.say(seq, "let me "+tool)
		m := &turnv1.Message{Role: "assistant", Seq: seq, ToolCalls: []*turnv1.ToolCall{{Id: id, Name: tool, ArgumentsJson: "{}"}}}
		if err := a.append(m); err != nil {
			return "", err
		}
		if crash(a, "after append") {
			return "", a.die()
		}
	}
	if m := stored[seq+1]; m != nil {
		return m.Content, nil
	}
	if crash(a, "during call") {
		go func() { _, _ = a.call(id, tool, "{}", seq) }()
		<-a.reached(tool)
		return "", a.die()
	}
	res, err := a.call(id, tool, "{}", seq)
	if err != nil {
		return "", err
	}
	if crash(a, "after call") {
		return "", a.die()
	}
	return res.Content, a.append(&turnv1.Message{Role: "tool", Seq: seq + 1, ToolCallId: id, ToolName: tool, Content: res.Content})
}

// reached is closed when the tool has been invoked.
func (a *agentRun) reached(tool string) <-chan struct{} { return a.rig.reached(tool) }

func never(*agentRun, string) bool { return false }
