package telegram

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheLimitsOfTelegramAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(30)
		sent := func(chat int64, d time.Duration) int {
			n := 0
			for end := time.Now().Add(d); time.Now().Before(end); {
				var f *floodError
				switch err := l.wait(t.Context(), chat, fresh); {
				case err == nil:
					n++
				case errors.As(err, &f):
					time.Sleep(f.after)
				default:
					t.Fatal(err)
				}
			}
			return n
		}
		if n := sent(1, time.Minute); n > 60+chatBurst+1 || n < 60 {
			t.Errorf("%d messages a minute to a person", n)
		}
		if n := sent(-1, time.Minute); n > 20+groupBurst+1 || n < 20 {
			t.Errorf("%d messages a minute to a group", n)
		}
		time.Sleep(time.Minute)
		all, begin := 0, time.Now()
		for chat := int64(1000); time.Since(begin) < 10*time.Second; chat++ {
			if err := l.wait(t.Context(), chat, fresh); err == nil {
				all++
			} else {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if all > 10*30+31 || all < 290 {
			t.Errorf("%d messages in 10 s to all chats", all)
		}
	})
}

func TestWhatMayBeLeftOutLeavesRoomForWhatMustBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(30)
		n := 0
		for l.spare(1) {
			n++
		}
		if n == 0 || n > 16 {
			t.Errorf("%d of a burst of 30", n)
		}
		if err := l.wait(t.Context(), 2, fresh); err != nil {
			t.Errorf("nothing left for a message: %v", err)
		}
	})
}

func TestALongWaitIsNotSatThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(30)
		l.flooded(1, 900*time.Second)
		begin := time.Now()
		var f *floodError
		if err := l.wait(t.Context(), 1, fresh); !errors.As(err, &f) || f.after != 900*time.Second {
			t.Errorf("%v", err)
		}
		if time.Since(begin) > 0 {
			t.Errorf("it took %s", time.Since(begin))
		}
		if err := l.wait(t.Context(), 2, fresh); err != nil {
			t.Errorf("another chat: %v", err)
		}
		if l.spare(1) {
			t.Error("what may be left out was not")
		}
		time.Sleep(900 * time.Second)
		if err := l.wait(t.Context(), 1, fresh); err != nil {
			t.Errorf("after the wait: %v", err)
		}
	})
}

func TestQuietChatsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(1e6)
		for chat := range int64(3 * keptChats) {
			_ = l.wait(t.Context(), chat+1, fresh)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(l.chats); n > keptChats+1 {
			t.Errorf("%d chats are remembered", n)
		}
	})
}
