package telegram

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/go-telegram/bot/models"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// maxQuote is how much of an answered message is repeated to the model, in runes.
const maxQuote = 300

// An incoming is a message of a person, or an album of several, on its way in.
type incoming struct {
	id       string // the platform's, for Accept
	first    *models.Message
	all      []*models.Message
	target   target
	place    place
	userName string
	body     string // as the model reads it, without the files
	files    []gateway.File
	edited   bool
}

// newIncoming reads the messages of one update, or of an album.
func newIncoming(all []*models.Message, edited bool, g groups, me account) *incoming {
	m := all[0]
	in := &incoming{
		id: strconv.Itoa(m.ID), first: m, all: all, place: g.place(m), userName: userName(m), edited: edited,
		target: target{chat: m.Chat.ID, reply: m.ID},
	}
	in.target.thread, _ = strconv.Atoi(in.place.thread)
	if in.target.thread == generalTopic {
		in.target.thread = 0
	}
	if last := all[len(all)-1]; last.ID != m.ID {
		// An album is one message. It has the ids of all its parts, so that more of it later is not a repeat.
		in.id += "-" + strconv.Itoa(last.ID)
	}
	if edited {
		in.id += "/edited/" + strconv.Itoa(m.EditDate)
	}
	in.body = in.text(me)
	return in
}

// text is what the model reads of the messages.
func (in *incoming) text(me account) string {
	var lines []string
	add := func(s string) {
		if s != "" {
			lines = append(lines, s)
		}
	}
	if in.edited {
		add("[An earlier message was edited. It now reads:]")
	}
	add(forwarded(in.first))
	add(quoted(in.first, me))
	for _, m := range in.all {
		body, entities := content(m)
		if m.Chat.Type != models.ChatTypePrivate {
			body = withoutMention(body, entities, me)
		}
		add(strings.TrimSpace(body))
		add(described(m))
	}
	s := strings.Join(lines, "\n")
	if s == "" && len(in.all) == 1 && len(attachments(in.first)) == 0 {
		s = "(The user wrote nothing but your name.)"
	}
	if in.place.shared && s != "" {
		s = "[" + oneLine(in.userName) + "] " + s
	}
	return s
}

// message is what is handed over. text is the person's own, from after a command.
func (in *incoming) message(text string) gateway.Message {
	return gateway.Message{
		ChatID: in.place.chat, ThreadID: in.place.thread, ID: in.id, ChatType: in.place.chatType,
		UserID: in.place.user, UserName: in.userName, Text: text, Files: in.files,
		SessionKey: in.place.key,
	}
}

// withoutMention takes the bot's name out of a text: it says whom the message is for, not what is asked.
func withoutMention(body string, entities []models.MessageEntity, me account) string {
	units := utf16.Encode([]rune(body))
	for i := len(entities) - 1; i >= 0; i-- {
		e := entities[i]
		end := e.Offset + e.Length
		if e.Type != models.MessageEntityTypeMention || e.Offset < 0 || end > len(units) {
			continue
		}
		if strings.EqualFold(string(utf16.Decode(units[e.Offset:end])), "@"+me.Username) {
			units = append(units[:e.Offset:e.Offset], units[end:]...)
		}
	}
	return string(utf16.Decode(units))
}

// cut16 is a range of s in UTF-16 units, empty if s has no such range.
func cut16(s string, offset, length int) string {
	units := utf16.Encode([]rune(s))
	if offset < 0 || length < 0 || offset+length > len(units) {
		return ""
	}
	return string(utf16.Decode(units[offset : offset+length]))
}

func forwarded(m *models.Message) string {
	o := m.ForwardOrigin
	if o == nil {
		return ""
	}
	switch {
	case o.MessageOriginUser != nil:
		return "[Forwarded from " + oneLine(o.MessageOriginUser.SenderUser.FirstName) + "]"
	case o.MessageOriginHiddenUser != nil:
		return "[Forwarded from " + oneLine(o.MessageOriginHiddenUser.SenderUserName) + "]"
	case o.MessageOriginChat != nil:
		return "[Forwarded from " + oneLine(o.MessageOriginChat.SenderChat.Title) + "]"
	case o.MessageOriginChannel != nil:
		return "[Forwarded from " + oneLine(o.MessageOriginChannel.Chat.Title) + "]"
	}
	return "[Forwarded]"
}

// quoted repeats what a message answers: the model has seen it long ago, or, in a group, never.
func quoted(m *models.Message, me account) string {
	r := m.ReplyToMessage
	if r == nil || r.ForumTopicCreated != nil {
		return ""
	}
	body, _ := content(r)
	if m.Quote != nil && m.Quote.Text != "" {
		body = m.Quote.Text
	}
	if body = strings.TrimSpace(body + " " + described(r)); body == "" {
		return ""
	}
	if runes := []rune(body); len(runes) > maxQuote {
		body = string(runes[:maxQuote]) + "…"
	}
	who := "a message"
	switch {
	case r.From != nil && r.From.ID == me.ID:
		who = "your message"
	case r.From != nil:
		who = "the message of " + oneLine(userName(r))
	}
	return fmt.Sprintf("[In answer to %s: %s]", who, strconv.Quote(body))
}

// described is a line for what a message holds beside text and files that are fetched.
func described(m *models.Message) string {
	switch {
	case m.Sticker != nil:
		return "[sticker " + m.Sticker.Emoji + "]"
	case m.Venue != nil:
		return fmt.Sprintf("[place: %s, %s, at %g, %g]", oneLine(m.Venue.Title), oneLine(m.Venue.Address), m.Venue.Location.Latitude, m.Venue.Location.Longitude)
	case m.Location != nil:
		return fmt.Sprintf("[location: %g, %g]", m.Location.Latitude, m.Location.Longitude)
	case m.Contact != nil:
		return fmt.Sprintf("[contact: %s %s, %s]", oneLine(m.Contact.FirstName), oneLine(m.Contact.LastName), oneLine(m.Contact.PhoneNumber))
	case m.Poll != nil:
		var options []string
		for _, o := range m.Poll.Options {
			options = append(options, oneLine(o.Text))
		}
		return fmt.Sprintf("[poll: %s (%s)]", oneLine(m.Poll.Question), strings.Join(options, " / "))
	case m.Dice != nil:
		return fmt.Sprintf("[dice %s: %d]", m.Dice.Emoji, m.Dice.Value)
	case m.Story != nil:
		return "[a story]"
	case m.Checklist != nil:
		return "[a checklist]"
	}
	return ""
}

// oneLine keeps a text that a stranger chose from looking like more than a name.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '[' || r == ']' || r == 0x7f || r == 0x2028 || r == 0x2029 {
			return '_'
		}
		return r
	}, s)
}
