package telegram

import (
	"context"
	"fmt"
	"time"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// noticeAgain is how often one conversation is told what became of its messages: a burst of them has one notice.
const noticeAgain = 30 * time.Second

var busyModes = map[string]hostv1.Busy{
	"interrupt": hostv1.Busy_BUSY_INTERRUPT,
	"queue":     hostv1.Busy_BUSY_QUEUE,
	"steer":     hostv1.Busy_BUSY_STEER,
}

// busyWith is what a message does to a turn that its conversation runs. One with files never ends a turn: a picture is
// often an afterthought.
func (a *Adapter) busyWith(in *incoming) hostv1.Busy {
	mode := busyModes[a.set.Busy]
	if len(in.files) > 0 && mode == hostv1.Busy_BUSY_INTERRUPT {
		return hostv1.Busy_BUSY_QUEUE
	}
	return mode
}

// accept hands a message over, and says what became of it if it has to wait. That is said after it was stored and
// never of a repeat, so a person who is told that a message waits is told the truth, and once.
func (a *Adapter) accept(ctx context.Context, in *incoming, m gateway.Message, busy hostv1.Busy) error {
	m.Busy = busy
	got, err := a.host.Accept(ctx, m)
	if err != nil || got.Duplicate {
		return err
	}
	if got.Disposition != hostv1.Disposition_DISPOSITION_STEERED {
		a.turns.add(openTurn{id: got.TurnID, chat: in.place.chat, thread: in.place.thread, key: in.place.key})
	}
	said := notice(got)
	if said == "" || !a.set.BusyNotice || !a.notices.due(in.place.key, time.Now()) {
		return nil
	}
	return a.answer(ctx, in, said)
}

// notice tells what became of a message, "" if that is seen by its answer.
func notice(got gateway.Accepted) string {
	switch got.Disposition {
	case hostv1.Disposition_DISPOSITION_QUEUED:
		if got.Ahead > 1 {
			return fmt.Sprintf("⏳ Queued behind %d others. I answer this when they are done; /stop ends them.", got.Ahead)
		}
		return "⏳ Queued. I answer this when I am done with what is running; /stop ends that."
	case hostv1.Disposition_DISPOSITION_INTERRUPTED:
		return "⚡ I end what is running and answer this next."
	case hostv1.Disposition_DISPOSITION_STEERED:
		return "⏩ I read this after my next step, without starting anew."
	}
	return ""
}
