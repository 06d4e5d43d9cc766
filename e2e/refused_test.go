package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ownDisk puts a home on a file system of its own, of that many MiB.
func (s *system) ownDisk(megabytes int) {
	s.t.Helper()
	kept := map[string][]byte{}
	for _, name := range []string{"config.yaml", ".env"} {
		if b, err := os.ReadFile(filepath.Join(s.home, name)); err == nil {
			kept[name] = b
		}
	}
	if err := unix.Mount("tmpfs", s.home, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", megabytes)); err != nil {
		s.t.Skip("a file system cannot be mounted here (root is needed): ", err)
	}
	s.t.Cleanup(func() {
		s.kill()
		_ = unix.Unmount(s.home, unix.MNT_DETACH)
	})
	for name, b := range kept {
		if err := os.WriteFile(filepath.Join(s.home, name), b, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *system) remount(flags uintptr) {
	s.t.Helper()
	if err := unix.Mount("", s.home, "", unix.MS_REMOUNT|flags, ""); err != nil {
		s.t.Fatal(err)
	}
}

// says runs a command and fails the test unless it ends so and its output has the words.
func (s *system) says(code int, words string, args ...string) {
	s.t.Helper()
	out, errs, got := s.command(nil, args...)
	if got != code || !strings.Contains(out+errs, words) {
		s.t.Errorf("%v ended with %d, not %d, or does not say %q:\n%s%s", args, got, code, words, out, errs)
	}
}

// condition waits until the store of conversations is in a condition, "" for none that keeps it from being written.
func (s *system) condition(want string) {
	s.t.Helper()
	s.eventually(limit, "the store is in the condition "+want, func() error {
		st, err := s.status()
		if err != nil {
			return err
		}
		for _, x := range st.Stores {
			if x.Name == "state" && x.Condition != want && (want != "" || x.State != "ok" && x.Condition != "disk_low") {
				return fmt.Errorf("it is %s: %s", x.State, x.Detail)
			}
		}
		return nil
	})
}

func (tg *telegram) ask(text, answer string) {
	tg.t.Helper()
	tg.say(text)
	tg.shows(answer)
}

func TestAReadOnlyHomeIsServedAndGoesOnByItself(t *testing.T) {
	tg := newTelegram(t, "", quickRestarts)
	tg.ownDisk(64)
	tg.start()
	tg.ask("the first question", "the first question")
	if code, _ := tg.stop(); code != 0 {
		t.Fatalf("stopped with %d", code)
	}
	tg.remount(unix.MS_RDONLY)
	tg.start()
	tg.condition("read_only")
	tg.says(0, "goes on by itself", "ctl", "status")
	tg.says(1, "read_only", "doctor")
	tg.says(0, "the first question", "sessions", "list")
	tg.says(0, "the first question", "sessions", "show", "latest")
	tg.says(0, "the first question", "sessions", "export", "--all")
	tg.says(1, "is read-only", "chat", "-q", "hello?")
	tg.ask("are you there?", "I can take no messages now")
	api := &apiChat{sys: tg.system}
	if _, _, err := api.try(context.Background(), "1", "and here?"); err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "is read-only") {
		t.Errorf("over the api: %v", err)
	}
	tg.remount(0)
	tg.shows("“are you there?”")
	tg.condition("")
	tg.says(0, "are you there?", "sessions", "show", "latest")
}

func TestADamagedStoreIsServedUntilARecoveredOneIsInItsPlace(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	ctx, client := s.session()
	for i := range 3 {
		sent := s.send(ctx, client, fmt.Sprint("m-", i), fmt.Sprintf("question %d %s", i, strings.Repeat("long ", 2000)))
		if _, err := follow(ctx, client, sent.TurnId, nil); err != nil {
			t.Fatal(err)
		}
	}
	if code, _ := s.stop(); code != 0 {
		t.Fatalf("stopped with %d", code)
	}
	path := filepath.Join(s.home, "state.db")
	harm(t, path, "question 1 long")
	s.start()
	s.condition("corrupt")
	s.says(0, "sessions recover", "ctl", "status")
	s.says(1, "corrupt", "doctor")
	s.says(0, "question 0", "sessions", "list")
	s.says(1, "is damaged", "chat", "-q", "hello?")
	saved := filepath.Join(s.home, "saved.db")
	s.says(0, "", "sessions", "recover", "--source", path, "--output", saved, "--allow-partial")
	if err := os.Rename(saved, path); err != nil {
		t.Fatal(err)
	}
	s.condition("")
	ctx, client = s.session()
	sent := s.send(ctx, client, "m-after", "after it")
	if _, err := follow(ctx, client, sent.TurnId, nil); err != nil {
		t.Error(err)
	}
}

// harm overwrites the page of a store that has a text, and makes the store look as if its last user was killed.
func harm(t *testing.T, path, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(b), text)
	if at < 0 {
		t.Fatalf("%q is not in %s", text, path)
	}
	at -= at % 4096
	clear(b[at : at+4096])
	for name, content := range map[string][]byte{path: b, path + "-wal": []byte("what a killed process left")} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
