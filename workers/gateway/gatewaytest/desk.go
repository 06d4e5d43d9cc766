package gatewaytest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// A Desk keeps in memory what chats ask of a supervisor: conversations with their turns, questions whether a command may
// be done, codes of strangers, restarts. It keeps to the same rules: what carries the id of a message is done once. It
// runs no turns; who uses it does, and says when they begin and end. It is safe for concurrent use.
type Desk struct {
	mu         sync.Mutex
	sessions   []*conversation
	current    map[string]*conversation // by key of the place
	answers    map[string]any           // by chat and message: what was answered to it
	open       []*hostv1.OpenTurn
	steered    map[string][]string // texts that were handed to a turn
	questions  []*hostv1.Confirmation
	always     map[string]bool // commands that a person allowed for always
	strangers  map[string]*stranger
	restarts   []*hostv1.RestartRequest
	mayRestart error // why not, nil if it may be
}

// A conversation is a session with what was asked in it.
type conversation struct {
	info      *hostv1.SessionInfo
	exchanges []string
}

// NewDesk returns an empty desk.
func NewDesk() *Desk {
	return &Desk{
		current: map[string]*conversation{}, answers: map[string]any{}, steered: map[string][]string{},
		always: map[string]bool{}, strangers: map[string]*stranger{},
	}
}

// placeKey is the key under which a place without one of its own is kept.
func placeKey(p *hostv1.Place) string {
	if p.SessionKey != "" {
		return p.SessionKey
	}
	return strings.Join([]string{"chat", p.ChatId, p.ThreadId}, "/")
}

func placeOf(r *hostv1.AcceptRequest) *hostv1.Place {
	return &hostv1.Place{
		ChatId: r.ChatId, ThreadId: r.ThreadId, ChatType: r.ChatType, UserId: r.UserId,
		SessionKey: r.SessionKey, SessionId: r.SessionId,
	}
}

// Accept does what Inbox.Accept does. A message that is new and was not steered begins a turn under the given id.
func (d *Desk) Accept(r *hostv1.AcceptRequest, turnID string) (*hostv1.AcceptResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := r.ChatId + "/" + r.MessageId
	if known, ok := d.answers[id].(*accepted); ok {
		if known.fingerprint != "" && r.Fingerprint != "" && known.fingerprint != r.Fingerprint {
			return nil, fmt.Errorf("message %s: %w", r.MessageId, ipc.ErrExists)
		}
		again := proto.CloneOf(known.response)
		again.Duplicate = true
		return again, nil
	}
	c, err := d.sessionFor(r)
	if err != nil {
		return nil, err
	}
	out := &hostv1.AcceptResponse{TurnId: turnID, SessionId: c.info.Id, Disposition: hostv1.Disposition_DISPOSITION_STARTED}
	ahead := d.openIn(c.info.Id)
	if n := len(ahead); n > 0 {
		out.Disposition, out.Ahead = hostv1.Disposition_DISPOSITION_QUEUED, uint32(n)
		first := ahead[0]
		switch {
		case r.Busy == hostv1.Busy_BUSY_INTERRUPT && !first.Stopping:
			first.Stopping = true
			out.Disposition, out.Interrupted = hostv1.Disposition_DISPOSITION_INTERRUPTED, first.TurnId
		case r.Busy == hostv1.Busy_BUSY_STEER && !first.Stopping:
			out.Disposition, out.TurnId = hostv1.Disposition_DISPOSITION_STEERED, first.TurnId
			d.steered[first.TurnId] = append(d.steered[first.TurnId], r.Text)
		}
	}
	d.answers[id] = &accepted{response: out, fingerprint: r.Fingerprint}
	if out.Disposition != hostv1.Disposition_DISPOSITION_STEERED {
		c.exchanges = append(c.exchanges, r.Text)
		d.begin(c, &hostv1.OpenTurn{
			TurnId: out.TurnId, ChatId: r.ChatId, ThreadId: r.ThreadId, MessageId: r.MessageId, UserId: r.UserId, UserName: r.UserName, Text: r.Text,
		})
	}
	return proto.CloneOf(out), nil
}

type accepted struct {
	response    *hostv1.AcceptResponse
	fingerprint string
}

// begin notes a turn that has not ended. With mu held.
func (d *Desk) begin(c *conversation, t *hostv1.OpenTurn) {
	now := float64(time.Now().UnixMilli()) / 1000
	t.SessionId, t.AcceptedAt = c.info.Id, now
	d.open = append(d.open, t)
	c.info.Messages += 2
	c.info.LastActive = now
}

// End notes that a turn has ended.
func (d *Desk) End(turnID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = slices.DeleteFunc(d.open, func(t *hostv1.OpenTurn) bool { return t.TurnId == turnID })
}

// Steered returns the texts that were handed to a running turn.
func (d *Desk) Steered(turnID string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.steered[turnID])
}

// openIn returns the turns of a session that have not ended. With mu held.
func (d *Desk) openIn(session string) (found []*hostv1.OpenTurn) {
	for _, t := range d.open {
		if t.SessionId == session {
			found = append(found, t)
		}
	}
	return found
}

// sessionFor finds or opens the session of a message. With mu held.
func (d *Desk) sessionFor(r *hostv1.AcceptRequest) (*conversation, error) {
	p := placeOf(r)
	if r.SessionId != "" {
		return d.at(p)
	}
	if c, ok := d.current[placeKey(p)]; ok && !r.NewSession {
		return c, nil
	}
	if c, ok := d.current[placeKey(p)]; ok {
		c.info.EndedAt = float64(time.Now().Unix())
	}
	now := float64(time.Now().UnixMilli()) / 1000
	c := &conversation{info: &hostv1.SessionInfo{
		Id: fmt.Sprintf("20260101_000000_%08x", len(d.sessions)+1), Key: placeKey(p), ChatId: r.ChatId, ThreadId: r.ThreadId,
		ChatType: r.ChatType, UserId: r.UserId, UserName: r.UserName, StartedAt: now, LastActive: now, Preview: r.Text,
	}}
	d.sessions = append(d.sessions, c)
	d.current[placeKey(p)] = c
	return c, nil
}

// at finds the session of a place. With mu held.
func (d *Desk) at(p *hostv1.Place) (*conversation, error) {
	if p.SessionId != "" {
		for _, c := range d.sessions {
			if c.info.Id == p.SessionId {
				return c, nil
			}
		}
		return nil, fmt.Errorf("session %s: %w", p.SessionId, ipc.ErrNotFound)
	}
	if c, ok := d.current[placeKey(p)]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("a session of %s: %w", placeKey(p), ipc.ErrNotFound)
}

// resting is at for what a running turn forbids. With mu held.
func (d *Desk) resting(p *hostv1.Place) (*conversation, error) {
	c, err := d.at(p)
	if err == nil && len(d.openIn(c.info.Id)) > 0 {
		return nil, fmt.Errorf("session %s: a turn is open: wait for its end or stop it first: %w", c.info.Id, ipc.ErrRefused)
	}
	return c, err
}

// doOnce does what a message asks for the first time that it is handed over.
func doOnce[T any](d *Desk, chat, message string, do func() (T, error)) (answer T, before bool, err error) {
	id := chat + "/" + message
	if known, ok := d.answers[id]; ok {
		same, ok := known.(T)
		if !ok {
			return answer, false, fmt.Errorf("message %s asked for something else: %w", message, ipc.ErrExists)
		}
		return same, true, nil
	}
	if answer, err = do(); err == nil {
		d.answers[id] = answer
	}
	return answer, false, err
}

// Retry does what Turns.Retry does. A new turn, under the given id, is begun unless the answer is a duplicate.
func (d *Desk) Retry(r *hostv1.RetryRequest, turnID string) (*hostv1.RetryResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out, before, err := doOnce(d, r.Place.ChatId, r.MessageId, func() (*hostv1.RetryResponse, error) {
		c, err := d.resting(r.Place)
		if err != nil {
			return nil, err
		}
		if len(c.exchanges) == 0 {
			return nil, fmt.Errorf("a message of %s: %w", c.info.Id, ipc.ErrNotFound)
		}
		text := c.exchanges[len(c.exchanges)-1]
		c.info.Messages -= 2
		d.begin(c, &hostv1.OpenTurn{
			TurnId: turnID, ChatId: r.Place.ChatId, ThreadId: r.Place.ThreadId, MessageId: r.MessageId, UserId: r.UserId, UserName: r.UserName, Text: text,
		})
		return &hostv1.RetryResponse{TurnId: turnID, SessionId: c.info.Id, Text: text}, nil
	})
	if err != nil {
		return nil, err
	}
	out = proto.CloneOf(out)
	out.Duplicate = before
	return out, nil
}

// ListOpen does what Turns.ListOpen does.
func (d *Desk) ListOpen(r *hostv1.ListTurnsRequest) *hostv1.ListTurnsResponse {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &hostv1.ListTurnsResponse{}
	for i, t := range d.open {
		if r.SessionId != "" && t.SessionId != r.SessionId || r.ChatId != "" && t.ChatId != r.ChatId || r.ThreadId != "" && t.ThreadId != r.ThreadId {
			continue
		}
		t = proto.CloneOf(t)
		t.Running = !slices.ContainsFunc(d.open[:i], func(o *hostv1.OpenTurn) bool { return o.SessionId == t.SessionId })
		out.Turns = append(out.Turns, t)
	}
	return out
}
