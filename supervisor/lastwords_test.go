package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
)

func TestLastWordsAreHeardOnceWhateverIsInTheirFolder(t *testing.T) {
	secrets := &redaction{}
	secrets.add([]string{"sesame-sesame"})
	book := logs.NewBook(logs.Options{Redact: secrets.text})
	defer book.Close()
	var told []store.Event
	w := wordsLeft{dir: filepath.Join(t.TempDir(), "last-words"), log: book.Logger(), book: book, now: time.Now, record: func(e store.Event) { told = append(told, e) }}
	w.hear() // there is no folder
	dir := w.folder()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said := time.Now().Add(-time.Hour).Truncate(time.Second)
	write("gateway-telegram-77", `{"@level":"info","@message":"token sesame-sesame was refused","@timestamp":"`+said.Format("2006-01-02T15:04:05.000000Z07:00")+`"}`+
		"\nplain \x1b[2Jtext\n"+strings.Repeat("many\n", 100)+"cut of")
	if err := os.Chtimes(filepath.Join(dir, "gateway-telegram-77"), said, said); err != nil {
		t.Fatal(err)
	}
	write("no-process", "x")
	write("12", "x")
	write("tools-5", strings.Repeat("x", 3*lastWordsBytes))
	if err := unix.Mkfifo(filepath.Join(dir, "tools-6"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "tools-7")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "tools-8", "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.hear()
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	lines := book.Tail("gateway-telegram", 1000)
	if len(lines) != 103 || lines[0].Message != "token [redacted] was refused" || lines[1].Message != "plain text" || lines[102].Message != "cut of" {
		t.Errorf("%d lines: %+v", len(lines), lines[:2])
	}
	if l := lines[0]; !l.Time.Equal(said) || l.PID != 77 {
		t.Errorf("said at %s by %d", l.Time, l.PID)
	}
	if len(told) != 1 || !strings.HasPrefix(told[0].Message, "2 workers ended as their supervisor was gone") || told[0].Time.Before(said) {
		t.Fatalf("told: %+v", told)
	}
	if kept := told[0].Fields["gateway-telegram-77"]; strings.Count(kept, "\n") != lastWordsKept-1 || !strings.HasSuffix(kept, "\ncut of") {
		t.Errorf("in the journal: %q", kept)
	}
	if l := book.Tail("tools", 1000); len(l) != 1 || len(l[0].Message) != logs.MaxLine {
		t.Errorf("%d lines of the one that said too much", len(l))
	}
	for _, l := range book.Tail("", 1000) {
		if strings.Contains(l.Message+fmt.Sprint(l.Fields), "root:") {
			t.Error("a link was followed")
		}
	}
}

func TestManyLastWordsAreRemovedAndOnlySomeAreHeard(t *testing.T) {
	book := logs.NewBook(logs.Options{})
	defer book.Close()
	heard := 0
	w := wordsLeft{dir: t.TempDir(), log: book.Logger(), book: book, now: time.Now, record: func(e store.Event) { heard = len(e.Fields) }}
	for n := range 3 * lastWordsFiles {
		if err := os.WriteFile(filepath.Join(w.dir, fmt.Sprintf("tools-%d", n)), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.hear()
	if list, _ := os.ReadDir(w.dir); len(list) > 0 || heard != lastWordsFiles {
		t.Errorf("%d files are left, %d were heard", len(list), heard)
	}
}

func TestTheJournalIsToldNoPartOfASecretAndWholeLetters(t *testing.T) {
	for name, line := range map[string]string{
		"secret": strings.Repeat("x", lastWordsTold-5) + "sesame-sesame",
		"letter": strings.Repeat("x", lastWordsTold-1) + "é and more",
	} {
		t.Run(name, func(t *testing.T) {
			secrets := &redaction{}
			secrets.add([]string{"sesame-sesame"})
			book := logs.NewBook(logs.Options{Redact: secrets.text})
			defer book.Close()
			var told store.Event
			w := wordsLeft{dir: t.TempDir(), log: book.Logger(), book: book, now: time.Now, record: func(e store.Event) { told = e }}
			if err := os.WriteFile(filepath.Join(w.dir, "tools-5"), []byte(line+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			w.hear()
			if text := told.Fields["tools-5"]; !strings.HasPrefix(text, "xxx") || strings.Contains(text, "sesa") || !utf8.ValidString(text) {
				t.Errorf("%q", text)
			}
		})
	}
}

// A plugin writes its last lines in a folder of its own, where it may put whatever it likes.
func TestAPluginLeavesLastWordsOfItsOwnAndNobodyElses(t *testing.T) {
	book := logs.NewBook(logs.Options{})
	defer book.Close()
	var told []store.Event
	data, outside := t.TempDir(), t.TempDir()
	now := time.Now()
	w := wordsLeft{
		dir: filepath.Join(t.TempDir(), "last-words"), plugins: map[string]string{"plugin-guest": data}, log: book.Logger(), book: book,
		now: func() time.Time { return now }, record: func(e store.Event) { told = append(told, e) },
	}
	secret := filepath.Join(outside, "plugin-guest-9")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, "a secret of somebody\n")
	w.hear() // it has no such folder
	folder := filepath.Join(data, pluginWords)
	if err := os.Symlink(outside, folder); err != nil {
		t.Fatal(err)
	}
	w.hear()
	if _, err := os.Stat(secret); err != nil || len(told) > 0 {
		t.Fatalf("a link of the plugin was followed: %v, %v", err, told)
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(folder, "tools-3"), "as if it were another worker\n")
	if err := os.Link(secret, filepath.Join(folder, "plugin-guest-4")); err != nil {
		t.Fatal(err)
	}
	w.hear()
	if len(told) > 0 {
		t.Errorf("told: %v", told)
	}
	write(filepath.Join(folder, "plugin-guest-5"), "goodbye\n")
	if err := os.Chtimes(filepath.Join(folder, "plugin-guest-5"), now, now.Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.hear()
	if len(told) != 1 || told[0].Fields["plugin-guest-5"] != "goodbye" || told[0].Time.After(now) {
		t.Errorf("told: %+v", told)
	}
	for n := range 3 * pluginWordsFiles {
		write(filepath.Join(folder, fmt.Sprintf("plugin-guest-%d", 100+n)), "x\n")
	}
	w.hear()
	if list, _ := os.ReadDir(folder); len(told) != 2 || len(told[1].Fields) != pluginWordsFiles || len(list) > 0 {
		t.Errorf("%d files are left, told: %v", len(list), told)
	}
	if text, _ := os.ReadFile(secret); string(text) != "a secret of somebody\n" {
		t.Errorf("what it had linked is now %q", text)
	}
	for _, l := range book.Tail("", 1000) {
		if strings.Contains(l.Message, "secret of") || l.Worker == "tools" {
			t.Errorf("in the log: %+v", l)
		}
	}
}
