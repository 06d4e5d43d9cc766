package bottest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

const maxText = 4096

// target finds the chat of a call, or says why the bot may not write there. With mu held, as all below.
func (s *Server) target(c Call) (*chat, *reply) {
	ch, known := s.chats[c.Chat()]
	var r reply
	switch {
	case !known:
		r = refuse(400, "chat not found")
	case ch.moved != 0:
		r = refuse(400, "group chat was upgraded to a supergroup chat")
		r.params = map[string]any{"migrate_to_chat_id": ch.moved}
	case ch.refusal != "":
		r = refuse(403, "")
		r.desc = "Forbidden: " + ch.refusal
	default:
		if thread := c.Int("message_thread_id"); thread != 0 && !ch.topics[thread] {
			r = refuse(400, "message thread not found")
			return nil, &r
		}
		if l := s.limiter.take(ch.id); l != nil {
			return nil, l
		}
		return ch, nil
	}
	return nil, &r
}

func (s *Server) sendMessage(c Call) reply {
	ch, refused := s.target(c)
	if refused != nil {
		return *refused
	}
	m := &Message{From: BotID, Kind: "text", Thread: c.Int("message_thread_id")}
	if r := m.setText(c, "text", "entities", maxText); r != nil {
		return *r
	}
	if m.Text == "" {
		return refuse(400, "message text is empty")
	}
	if r := m.setReply(c, ch); r != nil {
		return *r
	}
	if r := m.setMarkup(c); r != nil {
		return *r
	}
	return ok(s.json(ch, s.add(ch, m)))
}

// setText checks a text as the server does: entities first, then white space is trimmed, then the limit holds.
func (m *Message) setText(c Call, key, entitiesKey string, limit int) *reply {
	fail := func(format string, args ...any) *reply { r := refuse(400, format, args...); return &r }
	if mode := c.Params["parse_mode"]; mode != "" {
		return fail("unsupported parse_mode")
	}
	text := c.Params[key]
	var entities []Entity
	if raw := c.Params[entitiesKey]; raw != "" {
		if err := json.Unmarshal([]byte(raw), &entities); err != nil {
			return fail("can't parse entities: %v", err)
		}
	}
	if err := checkEntities(text, entities); err != nil {
		return fail("can't parse entities: %v", err)
	}
	if text = strings.TrimRightFunc(text, unicode.IsSpace); units(text) > limit {
		if key == "caption" {
			return fail("message caption is too long")
		}
		return fail("message is too long")
	}
	if strings.TrimFunc(text, unicode.IsSpace) == "" {
		text = ""
	}
	m.Text, m.Entities = text, entities
	return nil
}

var entityTypes = []string{
	"bold", "italic", "underline", "strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre", "text_link",
}

// checkEntities is stricter than the real server, which mends or drops what it can: here a wrong entity is a fault.
func checkEntities(text string, list []Entity) error {
	n := units(text)
	if len(list) > 100 {
		return fmt.Errorf("more than 100 entities")
	}
	for i, e := range list {
		switch {
		case !contains(entityTypes, e.Type):
			return fmt.Errorf("unsupported entity type %q", e.Type)
		case e.Offset < 0 || e.Length <= 0 || e.Offset+e.Length > n:
			return fmt.Errorf("entity %+v is outside of a text of %d", e, n)
		case e.Type == "text_link" && !strings.Contains(e.URL, "://"):
			return fmt.Errorf("entity %+v has no URL", e)
		}
		for _, o := range list[:i] {
			apart := e.Offset >= o.Offset+o.Length || o.Offset >= e.Offset+e.Length
			within := e.Offset >= o.Offset && e.Offset+e.Length <= o.Offset+o.Length
			code := func(t string) bool { return t == "code" || t == "pre" }
			quote := o.Type == "blockquote"
			if !apart && (!within || code(o.Type) || code(e.Type) && !quote || e.Type == o.Type) {
				return fmt.Errorf("entity %+v may not lie in %+v", e, o)
			}
		}
	}
	return nil
}

func (m *Message) setReply(c Call, ch *chat) *reply {
	raw := c.Params["reply_parameters"]
	if raw == "" {
		return nil
	}
	var p struct {
		MessageID    int  `json:"message_id"`
		AllowWithout bool `json:"allow_sending_without_reply"`
	}
	if err := json.Unmarshal([]byte(raw), &p); err != nil {
		r := refuse(400, "can't parse reply parameters: %v", err)
		return &r
	}
	if re, found := ch.messages[p.MessageID]; found && !re.Deleted {
		m.ReplyTo = p.MessageID
	} else if !p.AllowWithout {
		r := refuse(400, "message to be replied not found")
		return &r
	}
	return nil
}

func (m *Message) setMarkup(c Call) *reply {
	m.markup, m.Buttons = c.Params["reply_markup"], nil
	if m.markup == "" {
		return nil
	}
	var p struct {
		Keyboard [][]Button `json:"inline_keyboard"`
	}
	if err := json.Unmarshal([]byte(m.markup), &p); err != nil {
		r := refuse(400, "can't parse reply keyboard markup JSON object")
		return &r
	}
	for _, row := range p.Keyboard {
		for _, b := range row {
			if len(b.Data) > 64 || b.Data == "" && b.URL == "" {
				r := refuse(400, "BUTTON_DATA_INVALID")
				return &r
			}
		}
	}
	m.Buttons = p.Keyboard
	return nil
}

// own finds the bot's message that a call changes.
func (s *Server) own(c Call) (*chat, *Message, *reply) {
	ch, refused := s.target(c)
	if refused != nil {
		return nil, nil, refused
	}
	m, found := ch.messages[c.Int("message_id")]
	if !found || m.Deleted {
		r := refuse(400, "message to edit not found")
		return nil, nil, &r
	}
	if m.From != BotID {
		r := refuse(400, "message can't be edited")
		return nil, nil, &r
	}
	return ch, m, nil
}

const notModified = "message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message"

func (s *Server) editMessageText(c Call) reply {
	ch, m, refused := s.own(c)
	if refused != nil {
		return *refused
	}
	if m.Kind != "text" {
		return refuse(400, "there is no text in the message to edit")
	}
	next := *m
	if r := next.setText(c, "text", "entities", maxText); r != nil {
		return *r
	}
	if next.Text == "" {
		return refuse(400, "message text is empty")
	}
	if r := next.setMarkup(c); r != nil {
		return *r
	}
	if next.Text == m.Text && next.markup == m.markup && slices.Equal(next.Entities, m.Entities) {
		return refuse(400, notModified)
	}
	if next.Text != m.Text {
		next.Versions = append(slices.Clone(m.Versions), next.Text)
		next.Since = append(slices.Clone(m.Since), time.Now())
	}
	*m = next
	return ok(s.json(ch, m))
}

func (s *Server) editMarkup(c Call) reply {
	ch, m, refused := s.own(c)
	if refused != nil {
		return *refused
	}
	before := m.markup
	if r := m.setMarkup(c); r != nil {
		return *r
	}
	if m.markup == before {
		return refuse(400, notModified)
	}
	return ok(s.json(ch, m))
}

func (s *Server) deleteMessage(c Call) reply {
	ch, refused := s.target(c)
	if refused != nil {
		return *refused
	}
	m, found := ch.messages[c.Int("message_id")]
	if !found || m.Deleted {
		return refuse(400, "message to delete not found")
	}
	m.Deleted = true
	return ok(true)
}

func (s *Server) sendChatAction(c Call) reply {
	if _, refused := s.target(c); refused != nil {
		return *refused
	}
	if !contains([]string{"typing", "upload_photo", "upload_document", "upload_voice", "record_voice"}, c.Params["action"]) {
		return refuse(400, "wrong parameter action in request")
	}
	return ok(true)
}

func (s *Server) answerCallbackQuery(c Call) reply {
	q, found := s.queries[c.Params["callback_query_id"]]
	if !found || q.Answered {
		return refuse(400, "query is too old and response timeout expired or query ID is invalid")
	}
	q.Answered, q.Answer = true, c.Params["text"]
	return ok(true)
}
