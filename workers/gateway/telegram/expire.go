package telegram

import (
	"context"
	"slices"
	"sync"
	"time"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

const (
	// shownLimit bounds the questions whose buttons are taken away in time: each waits five minutes, so that is nearly one a
	// second. The buttons of an older one are taken away when they are pressed.
	shownLimit = 256
	// expireAgain is the pause before buttons are tried again that could not be taken away, and questionTries how often.
	expireAgain = 30 * time.Second
)

// A shownQuestion is a question about a command that stands in a chat with buttons.
type shownQuestion struct {
	*hostv1.Confirmation
	chat    int64
	message int
	due     time.Time
	tries   int
}

// shownQuestions are those of this process, the oldest first. It is safe for concurrent use.
type shownQuestions struct {
	mu   sync.Mutex
	all  []shownQuestion
	more chan struct{} // rings when there is one more
}

func newShownQuestions() *shownQuestions { return &shownQuestions{more: make(chan struct{}, 1)} }

func (s *shownQuestions) add(q shownQuestion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= shownLimit {
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, q)
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// settled forgets a question that has no buttons any more.
func (s *shownQuestions) settled(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(q shownQuestion) bool { return q.Id == id })
}

// take returns the questions whose time is over, and how long it is until the next one's is.
func (s *shownQuestions) take(now time.Time) (over []shownQuestion, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = tidyInterval
	s.all = slices.DeleteFunc(s.all, func(q shownQuestion) bool {
		if now.Before(q.due) {
			wait = min(wait, q.due.Sub(now))
			return false
		}
		over = append(over, q)
		return true
	})
	return over, wait
}

// expire takes the buttons of questions away that nobody answered in time.
func (a *Adapter) expire(ctx context.Context) {
	for {
		over, wait := a.shown.take(time.Now())
		for _, q := range over {
			if q.tries++; a.expired(ctx, q) || q.tries >= questionTries {
				continue
			}
			q.due = time.Now().Add(expireAgain)
			a.shown.add(q)
			wait = min(wait, expireAgain)
		}
		next := time.NewTimer(wait)
		select {
		case <-a.shown.more:
		case <-next.C:
		case <-ctx.Done():
		}
		next.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// expired writes under a question that its time is over. The supervisor decides whether it is: the question is answered with
// no, and an answer that came first holds, whose press could not take the buttons away. It returns false if that is to be
// tried again.
func (a *Adapter) expired(ctx context.Context, q shownQuestion) bool {
	c, err := a.host.AnswerConfirmation(ctx, &hostv1.AnswerRequest{Id: q.Id, Choice: hostv1.AnswerRequest_CHOICE_CANCEL, UserId: q.UserId})
	if err != nil {
		a.log.Warn("a question still has its buttons", "question", q.Id, "error", err)
		return false
	}
	if !c.DecidedBefore {
		c.State = hostv1.Confirmation_STATE_EXPIRED
	}
	if err := a.sender.edit(ctx, target{chat: q.chat}, q.message, settledText(c, outcome(c)), nil); err != nil {
		a.log.Warn("a question still has its buttons", "question", q.Id, "error", err)
		return isChatGone(err)
	}
	return true
}

// settledText is a question with what became of it.
func settledText(c *hostv1.Confirmation, said string) text.Styled {
	return text.Plain(c.Command + "\n\n" + c.Question + "\n\n" + said)
}
