package gateway

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

const (
	// laneQueue bounds the events that wait in one chat; the oldest that can be missed goes first.
	laneQueue = 128
	// keptTurns bounds what is remembered of turns: the text so far of those that run, the ids of those that
	// were delivered (events that come late must not follow the answer).
	keptTurns = 1024
)

// lanes keep the order of each chat: one Show or Deliver at a time, and no chat waits for another.
type lanes struct {
	ctx    context.Context // ends with the adapter
	shower Shower          // nil: nothing is shown

	mu        sync.Mutex
	byChat    map[string]*lane
	texts     *recent[*stepText]
	delivered *recent[struct{}]
	runners   sync.WaitGroup
}

// A lane is one chat while something happens in it. It goes when nobody uses it.
type lane struct {
	turn    chan struct{} // holds one token; who has it may talk to the platform
	users   int
	queue   []shown
	running bool               // a goroutine works the queue off
	cancel  context.CancelFunc // ends the Show that runs now
	waiting int                // deliveries that wait for the token; they go first
}

type shown struct {
	to    To
	event *turnv1.TurnEvent
}

// stepText is the text of a turn's current step.
type stepText struct {
	seq  uint32
	text string
}

func newLanes(ctx context.Context, shower Shower) *lanes {
	return &lanes{
		ctx: ctx, shower: shower, byChat: map[string]*lane{},
		texts: newRecent[*stepText](keptTurns), delivered: newRecent[struct{}](keptTurns),
	}
}

// use returns the lane of a chat; unuse must follow. Both with mu held.
func (l *lanes) use(chat string) *lane {
	c, ok := l.byChat[chat]
	if !ok {
		c = &lane{turn: make(chan struct{}, 1)}
		c.turn <- struct{}{}
		l.byChat[chat] = c
	}
	c.users++
	return c
}

func (l *lanes) unuse(chat string, c *lane) {
	if c.users--; c.users == 0 {
		delete(l.byChat, chat)
	}
}

// take waits until this delivery may talk to the chat. Events of its turn are void from now on, and a Show that
// runs is ended. release must be called when the delivery has ended.
func (l *lanes) take(ctx context.Context, chat, turnID string) (release func(), err error) {
	l.mu.Lock()
	c := l.use(chat)
	c.waiting++
	if turnID != "" {
		l.delivered.put(turnID, struct{}{})
		l.texts.drop(turnID)
	}
	if c.cancel != nil {
		c.cancel()
	}
	l.mu.Unlock()

	select {
	case <-c.turn:
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.waiting--
	if err != nil {
		l.wake(chat, c)
		l.unuse(chat, c)
		return nil, err
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.turn <- struct{}{}
		l.wake(chat, c)
		l.unuse(chat, c)
	}, nil
}

// show queues an event and returns at once.
func (l *lanes) show(to To, event *turnv1.TurnEvent) {
	if l.shower == nil || event == nil || event.GetFinal() != nil || l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivered.has(event.TurnId) {
		return
	}
	event = l.whole(event)
	c := l.use(to.ChatID)
	c.put(shown{to, event})
	l.wake(to.ChatID, c)
	l.unuse(to.ChatID, c)
}

// whole replaces a delta by all text of its step, so that an adapter has nothing to add up and any event but the
// last one may be left out.
func (l *lanes) whole(event *turnv1.TurnEvent) *turnv1.TurnEvent {
	if event.GetStarted() != nil {
		l.texts.drop(event.TurnId)
	}
	delta := event.GetText()
	if delta == nil {
		return event
	}
	step, ok := l.texts.get(event.TurnId)
	if !ok || step.seq != delta.Seq {
		step = &stepText{seq: delta.Seq}
		l.texts.put(event.TurnId, step)
	}
	if delta.Snapshot {
		step.text = delta.Text
	} else {
		step.text += delta.Text
	}
	event = proto.CloneOf(event)
	event.GetText().Text, event.GetText().Snapshot = step.text, true
	return event
}

// put appends an event. Text that still waits is overtaken by newer text of the same step.
func (c *lane) put(s shown) {
	if n := len(c.queue); n > 0 && overtakes(s.event, c.queue[n-1].event) {
		c.queue[n-1] = s
		return
	}
	if len(c.queue) >= laneQueue {
		c.queue = append(c.queue[:0], c.queue[1:]...)
	}
	c.queue = append(c.queue, s)
}

func overtakes(newer, older *turnv1.TurnEvent) bool {
	if newer.TurnId != older.TurnId {
		return false
	}
	if a, b := newer.GetText(), older.GetText(); a != nil && b != nil {
		return a.Seq == b.Seq
	}
	a, b := newer.GetToolProgress(), older.GetToolProgress()
	return a != nil && b != nil && a.CallId == b.CallId
}

// wake starts the goroutine of a lane if it has something to do. With mu held, by a user of the lane.
func (l *lanes) wake(chat string, c *lane) {
	if c.running || c.waiting > 0 || len(c.queue) == 0 || l.ctx.Err() != nil {
		return
	}
	c.running = true
	c.users++
	l.runners.Go(func() { l.work(chat, c) })
}

// work shows what waits, until nothing does or a delivery wants the chat.
func (l *lanes) work(chat string, c *lane) {
	for {
		select {
		case <-c.turn:
		case <-l.ctx.Done():
			l.stop(chat, c)
			return
		}
		next, ctx, ok := l.next(c)
		if ok {
			l.shower.Show(ctx, next.to, next.event)
		}
		c.turn <- struct{}{}
		if !ok {
			l.stop(chat, c)
			return
		}
	}
}

// next takes the first event that still counts.
func (l *lanes) next(c *lane) (shown, context.Context, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
	for c.waiting == 0 && len(c.queue) > 0 && l.ctx.Err() == nil {
		s := c.queue[0]
		c.queue = c.queue[1:]
		if l.delivered.has(s.event.TurnId) {
			continue
		}
		ctx, cancel := context.WithCancel(l.ctx)
		c.cancel = cancel
		return s, ctx, true
	}
	return shown{}, nil, false
}

func (l *lanes) stop(chat string, c *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.running = false
	l.wake(chat, c)
	l.unuse(chat, c)
}

// wait returns when no goroutine of a lane is left. The context of the lanes must have ended.
func (l *lanes) wait() {
	l.mu.Lock()
	for _, c := range l.byChat {
		if c.cancel != nil {
			c.cancel()
		}
	}
	l.mu.Unlock()
	l.runners.Wait()
}
