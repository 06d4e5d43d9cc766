package gatewaytest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// Confirmations returns the desk as the service of questions.
func (d *Desk) Confirmations() hostv1.ConfirmationsServer { return &confirmationsService{d: d} }

type confirmationsService struct {
	hostv1.UnimplementedConfirmationsServer
	d *Desk
}

// defaultTimeout is how long a question waits that does not say.
const defaultTimeout = 5 * time.Minute

func (s *confirmationsService) Ask(_ context.Context, r *hostv1.AskRequest) (*hostv1.Confirmation, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for _, c := range s.d.questions {
		if c.ChatId == r.ChatId && c.Key == r.Key {
			return stands(c), nil
		}
	}
	wait := time.Duration(r.TimeoutMs) * time.Millisecond
	if wait == 0 {
		wait = defaultTimeout
	}
	c := &hostv1.Confirmation{
		Id: fmt.Sprintf("c%016x", len(s.d.questions)+1), Key: r.Key, ChatId: r.ChatId, ThreadId: r.ThreadId, UserId: r.UserId,
		Command: r.Command, Question: r.Question, Payload: r.Payload, State: hostv1.Confirmation_STATE_PENDING,
		DeadlineMs: time.Now().Add(wait).UnixMilli(), AskedMs: time.Now().UnixMilli(),
	}
	if s.d.always[allowance(c)] {
		c.State, c.Remembered = hostv1.Confirmation_STATE_ALWAYS, true
	}
	s.d.questions = append(s.d.questions, c)
	return stands(c), nil
}

func allowance(c *hostv1.Confirmation) string { return c.ChatId + "/" + c.UserId + "/" + c.Command }

// stands is a question as it stands now.
func stands(c *hostv1.Confirmation) *hostv1.Confirmation {
	if c.State == hostv1.Confirmation_STATE_PENDING && time.Now().UnixMilli() >= c.DeadlineMs {
		c.State = hostv1.Confirmation_STATE_EXPIRED
	}
	return proto.CloneOf(c)
}

func (s *confirmationsService) find(id string) (*hostv1.Confirmation, error) {
	i := slices.IndexFunc(s.d.questions, func(c *hostv1.Confirmation) bool { return c.Id == id })
	if i < 0 {
		return nil, fmt.Errorf("question %s: %w", id, ipc.ErrNotFound)
	}
	return s.d.questions[i], nil
}

func (s *confirmationsService) Answer(_ context.Context, r *hostv1.AnswerRequest) (*hostv1.Confirmation, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	c, err := s.find(r.Id)
	switch {
	case err != nil:
		return nil, err
	case c.UserId != "" && c.UserId != r.UserId:
		return nil, fmt.Errorf("question %s is for another person: %w", r.Id, ipc.ErrDenied)
	case stands(c).State != hostv1.Confirmation_STATE_PENDING:
		before := stands(c)
		before.DecidedBefore = c.State != hostv1.Confirmation_STATE_EXPIRED
		return before, nil
	}
	switch r.Choice {
	case hostv1.AnswerRequest_CHOICE_ONCE:
		c.State = hostv1.Confirmation_STATE_ONCE
	case hostv1.AnswerRequest_CHOICE_ALWAYS:
		c.State = hostv1.Confirmation_STATE_ALWAYS
		s.d.always[allowance(c)] = true
	case hostv1.AnswerRequest_CHOICE_CANCEL:
		c.State = hostv1.Confirmation_STATE_CANCELLED
	default:
		return nil, fmt.Errorf("choice %v: %w", r.Choice, ipc.ErrInvalid)
	}
	return stands(c), nil
}

func (s *confirmationsService) Get(_ context.Context, r *hostv1.GetConfirmationRequest) (*hostv1.Confirmation, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	c, err := s.find(r.Id)
	if err != nil {
		return nil, err
	}
	return stands(c), nil
}

func (s *confirmationsService) List(_ context.Context, r *hostv1.ListConfirmationsRequest) (*hostv1.ListConfirmationsResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	out := &hostv1.ListConfirmationsResponse{}
	for _, c := range s.d.questions {
		now := stands(c)
		yes := now.State == hostv1.Confirmation_STATE_ONCE || now.State == hostv1.Confirmation_STATE_ALWAYS
		if (r.ChatId == "" || r.ChatId == now.ChatId) && (now.State == hostv1.Confirmation_STATE_PENDING || yes && !now.Done) {
			out.Confirmations = append(out.Confirmations, now)
		}
	}
	return out, nil
}

func (s *confirmationsService) Done(_ context.Context, r *hostv1.DoneRequest) (*hostv1.DoneResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	c, err := s.find(r.Id)
	if err != nil {
		return nil, err
	}
	c.Done = true
	return &hostv1.DoneResponse{}, nil
}

// A stranger is somebody whom no list names.
type stranger struct {
	code     string
	asked    time.Time
	approved bool
}

// What the supervisor allows strangers.
const (
	codeAgain   = 10 * time.Minute
	codeLife    = time.Hour
	maxRequests = 3
)

// Pairing returns the desk as the service of pairing.
func (d *Desk) Pairing() hostv1.PairingServer { return &pairingService{d: d} }

type pairingService struct {
	hostv1.UnimplementedPairingServer
	d *Desk
}

// Approve lets in whoever has a code, as the operator's command does. It returns false if nobody has it.
func (d *Desk) Approve(code string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.strangers {
		if s.code != "" && s.code == code {
			s.approved, s.code = true, ""
			return true
		}
	}
	return false
}

// Revoke takes back an approval.
func (d *Desk) Revoke(user string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.strangers, user)
}

func (s *pairingService) Check(_ context.Context, r *hostv1.PairingCheckRequest) (*hostv1.PairingCheckResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	known := s.d.strangers[r.UserId]
	return &hostv1.PairingCheckResponse{Allowed: known != nil && known.approved}, nil
}

func (s *pairingService) Request(_ context.Context, r *hostv1.PairingRequest) (*hostv1.PairingResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	now, open := time.Now(), 0
	for _, o := range s.d.strangers {
		if o.code != "" && now.Sub(o.asked) < codeLife {
			open++
		}
	}
	known := s.d.strangers[r.UserId]
	switch {
	case known != nil && known.approved:
		return &hostv1.PairingResponse{Outcome: hostv1.PairingResponse_OUTCOME_ALLOWED}, nil
	case known != nil && now.Sub(known.asked) < codeAgain:
		wait := codeAgain - now.Sub(known.asked)
		return &hostv1.PairingResponse{Outcome: hostv1.PairingResponse_OUTCOME_WAIT, RetryAfterMs: wait.Milliseconds()}, nil
	case open >= maxRequests:
		return &hostv1.PairingResponse{Outcome: hostv1.PairingResponse_OUTCOME_FULL}, nil
	}
	code := fmt.Sprintf("CODE%04d", len(s.d.strangers)+1)
	s.d.strangers[r.UserId] = &stranger{code: code, asked: now}
	return &hostv1.PairingResponse{
		Outcome: hostv1.PairingResponse_OUTCOME_CODE, Code: code, ExpiresMs: now.Add(codeLife).UnixMilli(),
		Command: "hermes-supervisor pairing approve telegram " + code,
	}, nil
}

// Lifecycle returns the desk as the service of restarts, which only counts them.
func (d *Desk) Lifecycle() hostv1.LifecycleServer { return &lifecycleService{d: d} }

type lifecycleService struct {
	hostv1.UnimplementedLifecycleServer
	d *Desk
}

// RefuseRestarts makes every restart fail with why, until it is nil.
func (d *Desk) RefuseRestarts(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mayRestart = why
}

// Restarts returns the restarts that were asked for, without repeats.
func (d *Desk) Restarts() []*hostv1.RestartRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.restarts)
}

func (s *lifecycleService) Restart(_ context.Context, r *hostv1.RestartRequest) (*hostv1.RestartResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	out, before, err := doOnce(s.d, r.ChatId, r.MessageId, func() (*hostv1.RestartResponse, error) {
		if s.d.mayRestart != nil {
			return nil, s.d.mayRestart
		}
		s.d.restarts = append(s.d.restarts, r)
		return &hostv1.RestartResponse{Running: uint32(len(s.d.open)), DrainMs: 60_000}, nil
	})
	if err != nil {
		return nil, err
	}
	out = proto.CloneOf(out)
	out.Duplicate = before
	return out, nil
}
