package telegram

import (
	"context"
	"strconv"
	"sync"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

// A target is where a message goes.
type target struct {
	chat   int64
	thread int // topic, 0 for none
	reply  int // message that is answered, 0 for none
}

// generalTopic is the topic that every forum has. Messages in it carry its id, but sending to it by id is refused.
const generalTopic = 1

// targetOf reads an address. ok is false if it is none of Telegram.
func targetOf(to gateway.To) (t target, ok bool) {
	var err error
	if t.chat, err = strconv.ParseInt(to.ChatID, 10, 64); err != nil {
		return t, false
	}
	if t.thread, _ = strconv.Atoi(to.ThreadID); t.thread == generalTopic {
		t.thread = 0
	}
	t.reply = messageNumber(to.ReplyTo)
	return t, true
}

// An outbox of the API: sends and edits with what Telegram may answer to them.
type sender struct {
	client *client
	limits *limits
	trails *trails

	mu    sync.Mutex
	moved map[int64]int64     // groups that became supergroups
	gone  map[target]struct{} // topics that are not there any more
}

func newSender(c *client, l *limits) *sender {
	return &sender{client: c, limits: l, trails: &trails{chats: map[int64]*trail{}}, moved: map[int64]int64{}, gone: map[target]struct{}{}}
}

// sent is what is needed of a message that was sent. The rest of the answer may hold anything.
type sent struct {
	ID int `json:"message_id"`
}

// send sends one message and returns its id.
func (s *sender) send(ctx context.Context, t target, body text.Styled, markup models.ReplyMarkup) (int, error) {
	var id int
	err := s.to(ctx, t, fresh, func(t target) error {
		p := &bot.SendMessageParams{ChatID: t.chat, MessageThreadID: t.thread, Text: body.Text, Entities: entities(body), ReplyMarkup: markup}
		p.ReplyParameters = replyTo(t)
		var m sent
		before := s.trails.begin(t.chat, t.reply)
		err := s.client.call(ctx, "sendMessage", p, &m)
		if isFormat(err) {
			p.Entities, p.Text = nil, plain(body)
			err = s.client.call(ctx, "sendMessage", p, &m)
		}
		id = m.ID
		s.trails.end(t.chat, before, id, markup == nil && body.Text == placeholder, err)
		return err
	})
	return id, err
}

func replyTo(t target) *models.ReplyParameters {
	if t.reply == 0 {
		return nil
	}
	return &models.ReplyParameters{MessageID: t.reply, AllowSendingWithoutReply: true}
}

// plain is a text whose styling was refused, with the addresses of its links if they fit.
func plain(s text.Styled) string {
	if p := s.Inline(); text.UTF16Len(p) <= maxText {
		return p
	}
	return s.Text
}

// edit makes one message show body. That it does so already is success.
func (s *sender) edit(ctx context.Context, t target, id int, body text.Styled, markup models.ReplyMarkup) error {
	return s.to(ctx, t, change, func(t target) error { return s.editNow(ctx, t, id, body, markup, false) })
}

func (s *sender) editNow(ctx context.Context, t target, id int, body text.Styled, markup models.ReplyMarkup, draft bool) error {
	p := &bot.EditMessageTextParams{ChatID: t.chat, MessageID: id, Text: body.Text, Entities: entities(body), ReplyMarkup: markup}
	if draft {
		// A preview that comes and goes with every edit makes the text jump.
		off := true
		p.LinkPreviewOptions = &models.LinkPreviewOptions{IsDisabled: &off}
	}
	err := s.client.call(ctx, "editMessageText", p, nil)
	if isFormat(err) {
		p.Entities, p.Text = nil, plain(body)
		err = s.client.call(ctx, "editMessageText", p, nil)
	}
	if isNotModified(err) {
		return nil
	}
	return err
}

// isPlaceholder says whether a message is a placeholder of the bot. Nothing else is changed by the question.
func (s *sender) isPlaceholder(ctx context.Context, t target, id int) (is bool, err error) {
	err = s.to(ctx, t, change, func(t target) error {
		p := &bot.EditMessageTextParams{ChatID: t.chat, MessageID: id, Text: placeholder}
		return s.client.call(ctx, "editMessageText", p, nil)
	})
	switch {
	case isNotModified(err):
		return true, nil
	case isNotEditable(err):
		return false, nil
	}
	return false, err
}

// draft edits a message on the way to its final text, if there is room for that now. done is false if there is not.
func (s *sender) draft(ctx context.Context, t target, id int, body text.Styled) (done bool, err error) {
	t = s.current(t)
	if !s.limits.spare(t.chat) {
		return false, nil
	}
	err = s.editNow(ctx, t, id, body, nil, true)
	s.note(t, err)
	return err == nil, err
}

// remove takes a message away. One that is gone is as good.
func (s *sender) remove(ctx context.Context, t target, id int) error {
	return s.to(ctx, t, change, func(t target) error {
		err := s.client.call(ctx, "deleteMessage", &bot.DeleteMessageParams{ChatID: t.chat, MessageID: id}, nil)
		if says(err, "message to delete not found", "message can't be deleted", "message_id_invalid") {
			return nil
		}
		return err
	})
}

// action shows that the bot is typing, or leaves it.
func (s *sender) action(ctx context.Context, t target) {
	t = s.current(t)
	if !s.limits.spare(t.chat) {
		return
	}
	err := s.client.call(ctx, "sendChatAction", &bot.SendChatActionParams{
		ChatID: t.chat, MessageThreadID: t.thread, Action: models.ChatActionTyping,
	}, nil)
	s.note(t, err)
}

// to makes a request for a target: within the limits, and once more where the answer says how (the group is another one
// now, the topic is gone).
func (s *sender) to(ctx context.Context, t target, kind kind, request func(target) error) error {
	var err error
	for range 3 {
		t = s.current(t)
		if err := s.limits.wait(ctx, t.chat, kind); err != nil {
			return err
		}
		err = request(t)
		if !s.note(t, err) {
			return err
		}
	}
	return err
}

// note learns from an answer. again is true if the same request may now work.
func (s *sender) note(t target, err error) (again bool) {
	if after, flooded := retryAfter(err); flooded {
		s.limits.flooded(t.chat, after)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a := asAPI(err); {
	case a != nil && a.migrateTo != 0 && a.migrateTo != t.chat:
		s.moved[t.chat] = a.migrateTo
		return true
	case isNoThread(err) && t.thread != 0:
		if len(s.gone) >= keptChats {
			clear(s.gone)
		}
		s.gone[target{chat: t.chat, thread: t.thread}] = struct{}{}
		return true
	}
	return false
}

// current is where a target is now.
func (s *sender) current(t target) target {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to, ok := s.moved[t.chat]; ok {
		t.chat, t.thread, t.reply = to, 0, 0 // ids of messages are not those of the old group
	}
	if _, ok := s.gone[target{chat: t.chat, thread: t.thread}]; ok {
		t.thread, t.reply = 0, 0
	}
	return t
}

// seen notes that a topic is there, as a message came from it.
func (s *sender) seen(t target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gone, target{chat: t.chat, thread: t.thread})
}

// move notes that a group became a supergroup.
func (s *sender) move(from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved[from] = to
}
