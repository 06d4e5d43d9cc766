package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

const (
	// progressRate and progressBurst bound the progress lines of a call. A person reads no faster, and every line
	// goes through the supervisor to a chat.
	progressRate  = 10
	progressBurst = 20
	// progressChars cuts one line.
	progressChars = 500
	// chunkBytes is the most that one message carries of a chunk, well under the limit of a message.
	chunkBytes = 256 << 10
)

// An Origin says for whom a call is made. Fields may be empty.
type Origin struct {
	TurnID    string
	SessionID string
	Platform  string
	ChatID    string
	ThreadID  string
	UserID    string
}

// A Call is one call of a tool while it runs. Its methods may be used from any goroutine until the handler returns.
type Call struct {
	ID      string // unique within the turn
	Tool    string
	Attempt int // from 1; more after a crash, for tools that are read only
	Origin  Origin

	env    *Env
	log    hclog.Logger
	lines  *rate.Limiter
	events chan *toolv1.InvokeEvent
	gone   chan struct{} // closed when nobody takes events any more

	mu      sync.Mutex
	ended   bool
	scratch string
	spill   string
}

func newCall(env *Env, req *toolv1.InvokeRequest) *Call {
	o := req.GetOrigin()
	return &Call{
		ID: req.CallId, Tool: req.Tool, Attempt: max(1, int(req.Attempt)),
		Origin: Origin{
			TurnID: o.GetTurnId(), SessionID: o.GetSessionId(), Platform: o.GetPlatform(),
			ChatID: o.GetChatId(), ThreadID: o.GetThreadId(), UserID: o.GetUserId(),
		},
		env:    env,
		log:    env.Log.With("tool", req.Tool, "call", req.CallId, "turn", o.GetTurnId()),
		lines:  rate.NewLimiter(progressRate, progressBurst),
		events: make(chan *toolv1.InvokeEvent, 64),
		gone:   make(chan struct{}),
	}
}

// Key names the call among all calls of all turns and is the same for every attempt. It is what a handler gives to
// a service that refuses to do the same thing twice.
func (c *Call) Key() string { return c.Origin.TurnID + "/" + c.ID }

// Log is the plugin's logger with the call's fields. What it writes is seen by the operator, never by the model.
func (c *Call) Log() hclog.Logger { return c.log }

// Progress shows a line to the person who waits. It never blocks: lines beyond a few a second are dropped.
func (c *Call) Progress(format string, a ...any) {
	if !c.lines.Allow() {
		return
	}
	line := cutLine(fmt.Sprintf(format, a...), progressChars)
	if line == "" {
		return
	}
	select {
	case c.events <- &toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Progress{Progress: line}}:
	default:
	}
}

// Chunk sends raw output as it comes. It blocks while the reader is slow, and fails when the call has ended.
func (c *Call) Chunk(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
		e := &toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Chunk{Chunk: append([]byte(nil), b[:n]...)}}
		select {
		case c.events <- e:
		case <-c.gone:
			return fmt.Errorf("chunk of %s: %w", c.Tool, errEnded)
		}
		b = b[n:]
	}
	return nil
}

var errEnded = errors.New("the call has ended")

// Write makes a Call an io.Writer of chunks.
func (c *Call) Write(b []byte) (int, error) {
	if err := c.Chunk(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Secret returns a secret that the plugin has been granted, by the name it has in .env. It is fetched when it is
// needed and stored nowhere.
func (c *Call) Secret(ctx context.Context, name string) (string, error) {
	if c.env.Secret == nil {
		return "", fmt.Errorf("secret %s: this plugin has been granted none", name)
	}
	value, err := c.env.Secret(ctx, name)
	if err != nil {
		return "", fmt.Errorf("secret %s: %w", name, err)
	}
	return value, nil
}

// Settings decodes the plugin's settings from the supervisor's configuration into a pointer to a struct. Settings
// that are not there leave it as it is.
func (c *Call) Settings(into any) error {
	if len(c.env.Settings) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.env.Settings, into); err != nil {
		return fmt.Errorf("settings of this plugin: %w", err)
	}
	return nil
}

// Scratch returns an empty directory of the call's own, which is removed with everything in it when the call ends.
func (c *Call) Scratch() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return "", fmt.Errorf("scratch directory: %w", errEnded)
	}
	if c.scratch == "" {
		dir, err := os.MkdirTemp(c.env.ScratchDir, "call-")
		if err != nil {
			return "", fmt.Errorf("scratch directory: %w", err)
		}
		c.scratch = dir
	}
	return c.scratch, nil
}

// Spill creates the file for the whole of an output of which the result holds only a part. The result names it, so
// that the model can read on. The caller closes it; old ones are removed in time.
func (c *Call) Spill() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, fmt.Errorf("spill file: %w", errEnded)
	}
	f, err := c.env.spills.create(c.Tool)
	if err != nil {
		return nil, err
	}
	c.spill = f.Name()
	return f, nil
}

// end releases what the call holds and returns the path of its spill file.
func (c *Call) end() (spill string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.scratch != "" {
		if err := os.RemoveAll(c.scratch); err != nil {
			c.log.Warn("scratch directory stays", "error", err)
		}
		c.scratch = ""
	}
	return c.spill
}

// cutLine makes s one line of at most chars characters, without what would change the look of a terminal.
func cutLine(s string, chars int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.TrimSpace(s)
	if utf8.RuneCountInString(s) <= chars {
		return s
	}
	return string([]rune(s)[:chars-1]) + "…"
}
