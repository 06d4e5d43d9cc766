package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// errGone says that the client no longer reads.
var errGone = errors.New("the client is gone")

// streamed answers with server-sent events as the turn goes on.
func (c *run) streamed(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithCancel(r.Context())
	events := make(chan *turnv1.TurnEvent)
	var final *turnv1.Final
	var err error
	go func() { // ended by cancel
		defer close(events)
		final, err = c.services.Follow(ctx, c.accepted.TurnID, func(e *turnv1.TurnEvent) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	defer func() {
		cancel()
		for range events { // until the follower has ended
		}
	}()

	s := c.startStream(w)
	alive := time.NewTicker(time.Duration(c.settings.KeepAlive))
	defer alive.Stop()
	for s.err == nil {
		select {
		case e, ok := <-events:
			if ok {
				s.event(e)
				continue
			}
			if err != nil {
				s.fail(c.lost())
				return errors.Join(err, s.err)
			}
			s.final(final, c.usage, c.accepted.TurnID)
			return s.err
		case <-alive.C:
			s.comment("keep-alive")
		}
	}
	return s.err
}

// A sse writes one answer as server-sent events. After the first error it writes nothing more.
type sse struct {
	w        http.ResponseWriter
	conn     *http.ResponseController
	answer   answer
	text     *growing
	usage    bool // every chunk has a usage, null but in the last
	progress string
	err      error
}

func (c *run) startStream(w http.ResponseWriter) *sse {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // a proxy that collects the stream would make it pointless
	w.WriteHeader(http.StatusOK)
	s := &sse{
		w: w, conn: http.NewResponseController(w), answer: newAnswer(c.accepted.TurnID, c.model),
		text: newGrowing(), usage: c.usage, progress: c.progress,
	}
	empty := ""
	s.chunk(s.answer.chunk(choice{Delta: &message{Role: "assistant", Content: &empty}}))
	return s
}

// event passes on what a client of the protocol understands: text. Tools are told of to clients that asked.
func (s *sse) event(e *turnv1.TurnEvent) {
	switch {
	case e.GetStarted() != nil:
		s.text.started()
	case e.GetText() != nil:
		s.delta(s.text.text(e.GetText()))
	case e.GetToolStarted() != nil:
		s.text.tool()
		t := e.GetToolStarted()
		s.tool(progress{Tool: t.Tool, CallID: t.CallId, Status: "running", Label: t.Summary})
	case e.GetToolProgress() != nil:
		t := e.GetToolProgress()
		s.tool(progress{CallID: t.CallId, Status: "running", Label: t.Text})
	case e.GetApproval() != nil:
		t := e.GetApproval()
		s.tool(progress{Tool: t.Tool, CallID: t.CallId, Status: "waiting", Label: "waits for a person's yes: " + t.Summary})
	case e.GetToolFinished() != nil:
		t := e.GetToolFinished()
		status := "completed"
		if !t.Ok {
			status = "failed"
		}
		s.tool(progress{Tool: t.Tool, CallID: t.CallId, Status: status})
	}
}

func (s *sse) delta(text string) {
	if text != "" {
		s.chunk(s.answer.chunk(choice{Delta: &message{Content: &text}}))
	}
}

func (s *sse) tool(p progress) {
	switch s.progress {
	case "event":
		s.data("event: hermes.tool.progress\n", p)
	case "comment":
		s.comment(strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Tool, p.Status, p.Label)))
	}
}

// final sends what is missing of the reply and ends the stream.
func (s *sse) final(f *turnv1.Final, withUsage bool, turnID string) {
	s.delta(s.text.final(f.Text))
	reason := finishReason(f.Outcome)
	last := s.answer.chunk(choice{Delta: &message{}, FinishReason: &reason})
	last.Hermes = outcomeOf(f, turnID)
	s.chunk(last)
	if withUsage {
		c := s.answer.chunk()
		c.Usage = usageOf(f.Usage)
		s.data("", c)
	}
	s.write("data: [DONE]\n\n")
}

// fail ends a stream that cannot be finished. Clients of the protocol raise an error for it.
func (s *sse) fail(f *failure) {
	s.data("", map[string]*failure{"error": f})
}

func (s *sse) chunk(c completion) {
	if !s.usage {
		s.data("", c)
		return
	}
	s.data("", struct {
		completion
		Usage *usage `json:"usage"`
	}{completion: c})
}

func (s *sse) data(before string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // only values of this package come here
		panic(fmt.Sprintf("api: stream: %v", err))
	}
	s.write(before + "data: " + string(body) + "\n\n")
}

// comment is a line that clients skip. It keeps proxies from closing a silent stream.
func (s *sse) comment(text string) {
	line := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
	s.write(": " + line + "\n\n")
}

func (s *sse) write(text string) {
	if s.err != nil {
		return
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := s.w.Write([]byte(text))
	if err == nil {
		err = s.conn.Flush()
	}
	if err != nil {
		s.err = fmt.Errorf("%w: %w", errGone, err)
	}
}
