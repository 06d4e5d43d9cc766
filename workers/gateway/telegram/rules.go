package telegram

import (
	"strconv"
	"strings"

	"github.com/go-telegram/bot/models"
)

// An account is the bot's own.
type account struct {
	ID       int64  `json:"id"`
	Username string `json:"username"`
}

// people says who may use the bot. Without a list nobody may.
type people struct {
	all   bool
	users map[string]bool // ids, and names in lower case without @
	chats map[string]bool
}

func newPeople(users, chats list) people {
	p := people{users: map[string]bool{}, chats: map[string]bool{}}
	for _, u := range users {
		if u == "*" {
			p.all = true
		}
		p.users[strings.ToLower(strings.TrimPrefix(u, "@"))] = true
	}
	for _, c := range chats {
		p.chats[c] = true
	}
	return p
}

// nobody reports whether no one at all is allowed.
func (p people) nobody() bool { return !p.all && len(p.users) == 0 && len(p.chats) == 0 }

// allow reports whether a user may use the bot in a chat. u is nil for an administrator who writes as the group.
func (p people) allow(u *models.User, chat models.Chat) bool {
	if chat.Type != models.ChatTypePrivate && p.chats[id64(chat.ID)] {
		return true
	}
	return u != nil && (p.all || p.named(u))
}

// named reports whether a list names a user.
func (p people) named(u *models.User) bool {
	return p.users[id64(u.ID)] || u.Username != "" && p.users[strings.ToLower(u.Username)]
}

func id64(n int64) string { return strconv.FormatInt(n, 10) }

// groups are the rules for messages in groups.
type groups struct {
	requireMention bool
	free           map[string]bool
	perUser        bool
	topicsPerUser  bool
}

func newGroups(s settings) groups {
	g := groups{requireMention: s.RequireMention, free: map[string]bool{}, perUser: s.GroupsPerUser, topicsPerUser: s.TopicsPerUser}
	for _, c := range s.FreeChats {
		g.free[c] = true
	}
	return g
}

// author is who wrote a message: the user, or nil for somebody who writes as a chat (anonymous administrators, linked channels).
func author(m *models.Message) *models.User {
	if m.SenderChat != nil {
		return nil
	}
	return m.From
}

// own reports whether the bot itself, or another bot, made a message: such a message never starts a turn, or two
// bots would talk to each other for ever.
func own(m *models.Message, me account) bool {
	if m.From == nil || m.ViaBot != nil && m.ViaBot.ID == me.ID {
		return true
	}
	return m.SenderChat == nil && m.From.IsBot || m.From.ID == me.ID
}

// addressed reports whether a message is meant for the bot.
func (g groups) addressed(m *models.Message, me account) bool {
	if m.Chat.Type == models.ChatTypePrivate || !g.requireMention || g.free[id64(m.Chat.ID)] {
		return true
	}
	if r := m.ReplyToMessage; r != nil && r.From != nil && r.From.ID == me.ID && r.ForumTopicCreated == nil {
		return true
	}
	if c, ok := commandOf(m); ok {
		return c.meantFor(me)
	}
	body, entities := content(m)
	for _, e := range entities {
		switch e.Type {
		case models.MessageEntityTypeMention:
			if strings.EqualFold(cut16(body, e.Offset, e.Length), "@"+me.Username) {
				return true
			}
		case models.MessageEntityTypeTextMention:
			if e.User != nil && e.User.ID == me.ID {
				return true
			}
		}
	}
	return false
}

// content is the text of a message or the caption of its file.
func content(m *models.Message) (string, []models.MessageEntity) {
	if m.Text != "" {
		return m.Text, m.Entities
	}
	return m.Caption, m.CaptionEntities
}

// threadOf is the topic of a message, "" for none. Replies in groups without topics carry a thread too, which is no
// conversation of its own.
func threadOf(m *models.Message) string {
	if m.MessageThreadID == 0 || !m.IsTopicMessage {
		return ""
	}
	return strconv.Itoa(m.MessageThreadID)
}

// place is where a message belongs.
type place struct {
	chat, thread   string
	chatType, user string
	key            string // of the session
	shared         bool   // several people talk in one session
}

func (g groups) place(m *models.Message) place {
	p := place{chat: id64(m.Chat.ID), thread: threadOf(m), chatType: "dm", user: userID(m)}
	key := []string{"agent", "main", Platform}
	if m.Chat.Type == models.ChatTypePrivate {
		key = append(key, "dm", p.chat)
	} else {
		p.chatType = "group"
		key = append(key, "group", p.chat)
	}
	if p.thread != "" {
		key = append(key, p.thread)
	}
	if p.chatType == "group" {
		if p.thread == "" && g.perUser || p.thread != "" && g.topicsPerUser {
			key = append(key, p.user)
		} else {
			p.shared = true
		}
	}
	p.key = strings.Join(key, ":")
	return p
}

func userID(m *models.Message) string {
	if m.SenderChat != nil {
		return id64(m.SenderChat.ID)
	}
	return id64(m.From.ID)
}

func userName(m *models.Message) string {
	if m.SenderChat != nil {
		return m.SenderChat.Title
	}
	return strings.TrimSpace(m.From.FirstName + " " + m.From.LastName)
}
