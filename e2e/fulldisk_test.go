package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

const (
	ballast    = "ballast" // the file that fills the disk of a home
	slowPerson = firstPerson + 1
)

// fill leaves no room on the disk of the home.
func (s *system) fill() {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.home, ballast), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if n, err := f.Write(make([]byte, size)); err != nil || n < size {
			if err != nil && !errors.Is(err, unix.ENOSPC) {
				s.t.Fatal(err)
			}
			size /= 2
		}
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) makeRoom() {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.home, ballast)); err != nil {
		s.t.Fatal(err)
	}
}

// once fails the test unless these words are in the chat exactly once.
func (tg *telegram) once(chat int64, words string) {
	tg.t.Helper()
	if n := strings.Count(strings.Join(tg.bot.Texts(chat), "\n"), words); n != 1 {
		tg.t.Errorf("%q is in the chat %d times: %q", words, n, tg.bot.Texts(chat))
	}
}

// told says that the first person knows that nothing is taken.
func (tg *telegram) told() bool {
	return strings.Contains(strings.Join(tg.bot.Texts(firstPerson), "\n"), "I can take no messages now")
}

// A disk gets full while the system runs and a turn is under way. The fault has its name, the person is told, what was
// stored is read, a death changes nothing, and when there is room everything is answered, once.
func TestAFullDiskIsToldOfAndGoesOnByItself(t *testing.T) {
	tg := newTelegram(t, "", quickRestarts)
	tg.ownDisk(64)
	tg.start()
	tg.ask("the first question", "the first question")
	tg.bot.Private(slowPerson, "Ben")
	tg.bot.Say(bottest.Post{From: slowPerson, Text: "wait: 2"})
	tg.eventually(limit, "the slow turn runs", func() error {
		st, err := tg.status()
		if err == nil && st.Turns.Running == 0 {
			err = errors.New("none runs")
		}
		return err
	})
	tg.fill()
	// Short texts fit into what the log has room for already.
	long := strings.Repeat("many words ", 300)
	words := ""
	for i := 0; !tg.told(); i++ {
		if i == 200 {
			t.Fatalf("the person is not told that the disk is full: %q", tg.bot.Texts(firstPerson))
		}
		words = fmt.Sprintf("[%d] are you there?", i)
		tg.say(words + " " + long)
		tg.eventually(limit, words, func() error {
			if waits := tg.bot.Waiting(); waits > 0 && !tg.told() {
				return fmt.Errorf("%d messages wait", waits)
			}
			return nil
		})
	}
	tg.condition("disk_full")
	tg.says(0, "make room", "ctl", "status")
	tg.says(1, "disk_full", "doctor")
	tg.says(0, "the first question", "sessions", "list")
	tg.says(0, "first", "sessions", "search", "first")
	tg.says(75, "disk is full", "chat", "-q", "hello?"+long)
	api := &apiChat{sys: tg.system}
	if _, _, err := api.try(context.Background(), "1", "and here? "+long); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("over the api: %v", err)
	}
	tg.kill()
	tg.fill() // what the death gave back
	tg.start()
	tg.condition("disk_full")
	tg.says(0, "the first question", "sessions", "list")
	tg.makeRoom()
	tg.settle(limit)
	tg.condition("")
	tg.once(slowPerson, "done.")
	tg.once(firstPerson, "“"+words)
	list, err := filepath.Glob(filepath.Join(tg.home, "*.bak"))
	if err != nil || len(list) > 0 {
		t.Errorf("moved aside: %v, %v", list, err)
	}
}
