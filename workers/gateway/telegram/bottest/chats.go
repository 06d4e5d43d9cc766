package bottest

import (
	"slices"
	"sort"
	"time"
	"unicode/utf16"
)

// A Message is one message of a chat, the bot's or a person's, as it is now.
type Message struct {
	ID       int
	Chat     int64
	Thread   int
	From     int64
	Text     string // or caption
	Entities []Entity
	ReplyTo  int
	Buttons  [][]Button
	File     Upload      // of a document and its like
	Kind     string      // text, document, photo, …
	Versions []string    // texts that it had, oldest first, the present one last
	Since    []time.Time // when each of them was written
	Deleted  bool
	Time     time.Time

	markup string
}

// An Entity styles a range of a text, in UTF-16 units.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	Language string `json:"language,omitempty"`
}

// A Button is one key of an inline keyboard.
type Button struct {
	Text string `json:"text"`
	Data string `json:"callback_data"`
	URL  string `json:"url,omitempty"`
}

// chat is one chat that the bot knows.
type chat struct {
	id       int64
	kind     string // private, group, supergroup
	title    string
	forum    bool
	topics   map[int]bool
	refusal  string // why the bot may not write there
	moved    int64  // the supergroup that this group became
	messages map[int]*Message
	nextMsg  int // of a supergroup
}

func (c *chat) json() map[string]any {
	m := map[string]any{"id": c.id, "type": c.kind}
	if c.kind == "private" {
		m["first_name"] = c.title
	} else {
		m["title"] = c.title
	}
	if c.forum {
		m["is_forum"] = true
	}
	return m
}

// Private makes a person's chat with the bot known, as pressing Start does.
func (s *Server) Private(id int64, name string) {
	s.addChat(&chat{id: id, kind: "private", title: name})
}

// Group makes a basic group that the bot is a member of. Its id is negative.
func (s *Server) Group(id int64, title string) {
	s.addChat(&chat{id: id, kind: "group", title: title})
}

// Supergroup makes a supergroup that the bot is a member of, with forum topics if any are named.
func (s *Server) Supergroup(id int64, title string, topics ...int) {
	c := &chat{id: id, kind: "supergroup", title: title, forum: len(topics) > 0, nextMsg: 1, topics: map[int]bool{}}
	for _, t := range topics {
		c.topics[t] = true
	}
	s.addChat(c)
}

func (s *Server) addChat(c *chat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.messages = map[int]*Message{}
	s.chats[c.id] = c
}

// CloseTopic takes a topic away.
func (s *Server) CloseTopic(chat int64, topic int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.chats[chat].topics, topic)
}

// Block makes the chat refuse the bot with 403 and a text, until it is called with "".
func (s *Server) Block(chat int64, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats[chat].refusal = why
}

// Upgrade makes a basic group a supergroup with another id.
func (s *Server) Upgrade(from, to int64) {
	s.mu.Lock()
	old := s.chats[from]
	old.moved = to
	s.mu.Unlock()
	s.Supergroup(to, old.title)
}

// Messages returns the bot's own messages of a chat that are not deleted, in order.
func (s *Server) Messages(chat int64) []Message {
	return slices.DeleteFunc(s.All(chat), func(m Message) bool { return m.From != BotID || m.Deleted })
}

// Texts returns the texts of Messages.
func (s *Server) Texts(chat int64) []string {
	var out []string
	for _, m := range s.Messages(chat) {
		out = append(out, m.Text)
	}
	return out
}

// All returns every message of a chat, in order.
func (s *Server) All(chat int64) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.chats[chat]
	if !known {
		return nil
	}
	var out []Message
	for _, m := range c.messages {
		out = append(out, *m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// Delete takes a message away, as a person can do.
func (s *Server) Delete(chat int64, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats[chat].messages[id].Deleted = true
}

// add stores a new message under the next id. With mu held.
func (s *Server) add(c *chat, m *Message) *Message {
	m.Chat, m.Time = c.id, time.Now()
	if c.kind == "supergroup" {
		m.ID = c.nextMsg
		c.nextMsg++
	} else {
		m.ID = s.nextMsg
		s.nextMsg++
	}
	m.Versions, m.Since = []string{m.Text}, []time.Time{m.Time}
	c.messages[m.ID] = m
	return m
}

// json is the message as the API shows it.
func (s *Server) json(c *chat, m *Message) map[string]any {
	out := map[string]any{
		"message_id": m.ID, "date": m.Time.Add(s.skew).Unix(), "chat": c.json(),
		"from": map[string]any{"id": m.From, "is_bot": m.From == BotID, "first_name": s.nameOf(m.From)},
	}
	if m.Thread != 0 {
		out["message_thread_id"] = m.Thread
		out["is_topic_message"] = c.topics[m.Thread]
	}
	key, entities := "text", "entities"
	if m.Kind != "" && m.Kind != "text" {
		key, entities = "caption", "caption_entities"
	}
	if m.Text != "" {
		out[key] = m.Text
	}
	if len(m.Entities) > 0 {
		out[entities] = m.Entities
	}
	if re, found := c.messages[m.ReplyTo]; found && !re.Deleted {
		quoted := s.json(c, re)
		delete(quoted, "reply_to_message") // the API never nests them
		out["reply_to_message"] = quoted
	}
	return out
}

func (s *Server) nameOf(user int64) string {
	if user == BotID {
		return "Hermes"
	}
	if c, known := s.chats[user]; known {
		return c.title
	}
	return "somebody"
}

// units counts as the API does.
func units(s string) int { return len(utf16.Encode([]rune(s))) }
