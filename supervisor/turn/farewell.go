package turn

import (
	"context"
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	// noticeRestart is the kind of every word about a restart: a chat gets one of them in restartPause, however often the
	// supervisor or its service goes round.
	noticeRestart = "restart"
	restartPause  = 10 * time.Minute
	// farewells bounds how many chats are told at once.
	farewells = 1000

	resumedText = "♻ I was restarted while I worked on your message, and go on with it now."
)

// Farewell tells the chats with open turns that the supervisor stops and that their turns go on afterwards; again says that
// it comes back by itself. It is best effort: what is not stored before ctx ends is not told.
func (h *Hub) Farewell(ctx context.Context, again bool) {
	text := "⏳ I am being stopped. Your message is kept: what I am working on is finished if there is time, else it goes on when I am started again."
	if again {
		text = "⏳ I am being restarted. Your message is kept: what I am working on is finished if there is time, else it goes on afterwards."
	}
	h.mu.Lock()
	var open []store.Turn
	for _, l := range h.turns {
		open = append(open, l.turn)
	}
	h.mu.Unlock()
	h.tellOfRestart(ctx, open, text)
}

// tellOfRestart owes each chat of the turns one text about a restart.
func (h *Hub) tellOfRestart(ctx context.Context, turns []store.Turn, text string) {
	told := map[chat]bool{}
	for _, t := range turns {
		to := chat{t.Platform, t.ChatID}
		if told[to] || !h.pushed(t.Platform) || len(told) >= farewells {
			continue
		}
		told[to] = true
		row := store.OutboxRow{
			Key:      fmt.Sprintf("restart/%s/%s/%d", t.Platform, t.ChatID, h.now().UnixNano()),
			Platform: t.Platform, ChatID: t.ChatID, ThreadID: t.ThreadID, Text: text,
		}
		if _, err := h.store.PutNotice(ctx, row, noticeRestart, restartPause); err != nil {
			if h.ctx.Err() == nil {
				h.log.Warn("chats are not told of the restart", "error", err)
			}
			return
		}
	}
	if len(told) > 0 {
		h.outbox.wake()
	}
}
