package bottest

import (
	"fmt"
	"strings"
	"time"
)

// A Post is what a person writes. Chat 0 is the person's private chat with the bot.
type Post struct {
	From    int64
	Chat    int64
	Thread  int
	Text    string
	ReplyTo int
	Quote   string
	Bot     bool           // the sender is another bot
	Age     time.Duration  // how long ago, by the server's clock
	Photo   []byte         //
	Voice   []byte         //
	File    Upload         //
	Size    int64          // of the file as told, if it is not its own
	Group   string         // media_group_id
	Extra   map[string]any // further fields of the message
}

// Say makes a person write a message and returns its id.
func (s *Server) Say(p Post) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chatOf(p)
	m := s.add(c, &Message{From: p.From, Text: p.Text, Entities: detect(p.Text), Thread: p.Thread, ReplyTo: p.ReplyTo, Kind: "text"})
	m.Time = m.Time.Add(-p.Age)
	body := s.body(c, m, p)
	s.queue("message", body)
	return m.ID
}

func (s *Server) chatOf(p Post) *chat {
	if p.Chat == 0 {
		p.Chat = p.From
	}
	c, known := s.chats[p.Chat]
	if !known {
		panic(fmt.Sprintf("bottest: no chat %d", p.Chat))
	}
	return c
}

// body is the message as JSON with its file. With mu held.
func (s *Server) body(c *chat, m *Message, p Post) map[string]any {
	switch {
	case p.Photo != nil:
		m.Kind = "photo"
	case p.Voice != nil:
		m.Kind = "voice"
	case p.File.Data != nil:
		m.Kind = "document"
	}
	body := s.json(c, m)
	from := body["from"].(map[string]any)
	from["is_bot"] = p.Bot
	switch m.Kind {
	case "photo":
		small, large := s.addFile("photos", ".jpg", p.Photo[:1], 0), s.addFile("photos", ".jpg", p.Photo, p.Size)
		body["photo"] = []any{s.sized(small, map[string]any{"width": 90, "height": 67}), s.sized(large, map[string]any{"width": 1280, "height": 960})}
	case "voice":
		body["voice"] = s.sized(s.addFile("voice", ".oga", p.Voice, p.Size), map[string]any{"duration": 3, "mime_type": "audio/ogg"})
	case "document":
		body["document"] = s.sized(s.addFile("documents", ".bin", p.File.Data, p.Size), map[string]any{"file_name": p.File.Name, "mime_type": "application/pdf"})
	}
	if p.Group != "" {
		body["media_group_id"] = p.Group
	}
	if p.Quote != "" {
		body["quote"] = map[string]any{"text": p.Quote, "position": 0}
	}
	for k, v := range p.Extra {
		body[k] = v
	}
	return body
}

func (s *Server) sized(id string, fields map[string]any) map[string]any {
	fields["file_id"], fields["file_unique_id"], fields["file_size"] = id, uniqueID(id), s.files[id].size
	return fields
}

// Repeat hands a message of a person over once more, as one that was never confirmed.
func (s *Server) Repeat(chat int64, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chat]
	s.queue("message", s.json(c, c.messages[id]))
}

// Edit makes a person change an earlier message.
func (s *Server) Edit(chat int64, id int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chat]
	m := c.messages[id]
	m.Text, m.Entities = text, detect(text)
	body := s.json(c, m)
	body["edit_date"] = time.Now().Unix()
	s.queue("edited_message", body)
}

// A Query is a button that was pressed.
type Query struct {
	ID       string
	Answered bool
	Answer   string
}

// Press makes a person press the button with a label under a message of the bot and returns the query.
func (s *Server) Press(person, chat int64, message int, label string) *Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chat]
	m := c.messages[message]
	for _, row := range m.Buttons {
		for _, b := range row {
			if b.Text == label {
				return s.press(person, c, m, b.Data)
			}
		}
	}
	panic(fmt.Sprintf("bottest: no button %q under message %d", label, message))
}

// PressData presses a button that need not exist any more.
func (s *Server) PressData(person, chat int64, message int, data string) *Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.press(person, s.chats[chat], s.chats[chat].messages[message], data)
}

func (s *Server) press(person int64, c *chat, m *Message, data string) *Query {
	q := &Query{ID: fmt.Sprintf("Q%d", len(s.queries)+1)}
	s.queries[q.ID] = q
	s.queue("callback_query", map[string]any{
		"id": q.ID, "chat_instance": "1", "data": data, "message": s.json(c, m),
		"from": map[string]any{"id": person, "is_bot": false, "first_name": s.nameOf(person)},
	})
	return q
}

// Query returns a query as it is now.
func (s *Server) Query(id string) Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.queries[id]
}

// detect finds commands and mentions, which the real server does for messages of people.
func detect(text string) []Entity {
	var out []Entity
	at := 0
	for _, field := range strings.Fields(text) {
		i := strings.Index(text[at:], field) + at
		at = i + len(field)
		kind := ""
		switch {
		case strings.HasPrefix(field, "/") && len(field) > 1:
			kind = "bot_command"
		case strings.HasPrefix(field, "@") && len(field) > 1:
			kind, field = "mention", "@"+strings.TrimRight(field[1:], ".,:;!?")
		default:
			continue
		}
		out = append(out, Entity{Type: kind, Offset: units(text[:i]), Length: units(field)})
	}
	return out
}
