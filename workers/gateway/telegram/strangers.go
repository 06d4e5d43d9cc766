package telegram

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-telegram/bot/models"
)

const (
	// strangerAgain is how often one stranger is told that the bot is private.
	strangerAgain = time.Hour
	// maxStrangers bounds who is remembered; then nobody more is told until the hour is over.
	maxStrangers = 1000
)

// strangers remembers who was told. A bot that answers every message of a stranger can be used to spend its limits.
type strangers struct {
	mu   sync.Mutex
	told map[int64]time.Time
}

func newStrangers() *strangers { return &strangers{told: map[int64]time.Time{}} }

// tell reports whether a user is to be told now.
func (s *strangers) tell(user int64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.told {
		if now.Sub(t) >= strangerAgain {
			delete(s.told, id)
		}
	}
	if _, known := s.told[user]; known || len(s.told) >= maxStrangers {
		return false
	}
	s.told[user] = now
	return true
}

// deny leaves a message of somebody unknown. In a private chat the person learns why, and the id to be allowed by.
func (a *Adapter) deny(ctx context.Context, m *models.Message) {
	a.log.Info("a message of somebody who is not allowed", "user", userID(m), "chat", m.Chat.ID)
	if m.Chat.Type != models.ChatTypePrivate || a.set.Strangers != "tell" || !a.strangers.tell(m.From.ID, time.Now()) {
		return
	}
	body := render(fmt.Sprintf("This bot is private. Your Telegram id is `%d`; whoever runs it can allow you with it.", m.From.ID))[0]
	if _, err := a.sender.send(ctx, target{chat: m.Chat.ID}, body, nil); err != nil {
		a.log.Warn("a stranger was not told", "error", err)
	}
}
