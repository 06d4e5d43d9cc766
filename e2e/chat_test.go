package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A chat asks and waits for the answer, through whatever the supervisor and its workers go through meanwhile.
type chat interface {
	// ask sends one message under id and returns the final reply. It repeats the same message until there is one.
	ask(ctx context.Context, id, text string) (string, error)
}

// retryPause is how long a client waits before it asks again; a person's client would wait longer.
const retryPause = 50 * time.Millisecond

// socketChat talks over the control socket, as the terminal does.
type socketChat struct {
	sys *system
	id  string
}

func (c *socketChat) ask(ctx context.Context, id, text string) (string, error) {
	for ctx.Err() == nil {
		final, err := c.try(ctx, id, text)
		if err == nil {
			return final.Text, nil
		}
		if errors.Is(err, ipc.ErrInvalid) || errors.Is(err, ipc.ErrDenied) {
			return "", err
		}
		time.Sleep(retryPause)
	}
	return "", fmt.Errorf("message %s: no answer: %w", id, ctx.Err())
}

func (c *socketChat) try(ctx context.Context, id, text string) (*turnv1.Final, error) {
	conn := c.sys.dial()
	defer func() { _ = conn.Close() }()
	client := controlv1.NewChatClient(conn)
	sent, err := client.Send(ctx, &controlv1.SendRequest{ChatId: c.id, MessageId: id, Text: text})
	if err != nil {
		return nil, err
	}
	return follow(ctx, client, sent.TurnId, nil)
}

// follow returns the final event of a turn; see sees the others.
func follow(ctx context.Context, client controlv1.ChatClient, turnID string, see func(*turnv1.TurnEvent)) (*turnv1.Final, error) {
	var events grpc.ServerStreamingClient[turnv1.TurnEvent]
	events, err := client.Follow(ctx, &controlv1.FollowRequest{TurnId: turnID})
	for err == nil {
		var e *turnv1.TurnEvent
		if e, err = events.Recv(); err != nil {
			break
		}
		if f := e.GetFinal(); f != nil {
			return f, nil
		}
		if see != nil {
			see(e)
		}
	}
	return nil, err
}

// apiChat talks to the api adapter, as an OpenAI client with idempotency keys does.
type apiChat struct {
	sys     *system
	session string
}

func (c *apiChat) ask(ctx context.Context, id, text string) (string, error) {
	for ctx.Err() == nil {
		reply, again, err := c.try(ctx, id, text)
		if err == nil {
			return reply, nil
		}
		if !again {
			return "", err
		}
		time.Sleep(retryPause)
	}
	return "", fmt.Errorf("message %s: no answer: %w", id, ctx.Err())
}

func (c *apiChat) try(ctx context.Context, id, text string) (reply string, again bool, err error) {
	body, _ := json.Marshal(map[string]any{
		"model":    "hermes",
		"messages": []map[string]string{{"role": "user", "content": text}},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.sys.api+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id)
	if c.session != "" {
		req.Header.Set("X-Hermes-Session-Id", c.session)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", true, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", true, err
	}
	if resp.StatusCode != http.StatusOK {
		busy := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500
		return "", busy, fmt.Errorf("message %s: %s: %s", id, resp.Status, answer)
	}
	var completion struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(answer, &completion); err != nil || len(completion.Choices) != 1 {
		return "", false, fmt.Errorf("message %s: odd answer %s: %w", id, answer, err)
	}
	c.session = resp.Header.Get("X-Hermes-Session-Id")
	return completion.Choices[0].Message.Content, false, nil
}
