package prompt

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func input(dir string) Input {
	return Input{
		Home: dir, Tools: []string{"kanban_create", "memory", "read_file", "terminal"},
		SessionID: "20261201_093000_0a1b2c3d", Started: time.Date(2026, 12, 1, 9, 30, 0, 0, time.UTC),
		Platform: "terminal", Model: "some-model", Provider: "openai",
	}
}

func TestPrompt(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		edit  func(*Input)
	}{
		{"empty_home", nil, nil},
		{"full_home", map[string]string{
			"SOUL.md":            "You are Ada.\r\nYou like short answers.\n",
			"memories/MEMORY.md": "The server is called mia.\n§\nBackups run at 02:00;\nthey take an hour.\n§\nThe server is called mia.\n",
			"memories/USER.md":   "Grüße are welcome.\n",
		}, func(in *Input) { in.Caller = "Answer in JSON.\n" }},
		{"no_tools", nil, func(in *Input) { in.Tools, in.Platform, in.Provider = nil, "api", "offline" }},
		{"empty_files", map[string]string{"SOUL.md": " \n", "memories/MEMORY.md": "\n§\n", "memories/USER.md": ""}, func(in *Input) { in.Tools = []string{"memory"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(home(t, c.files))
			if c.edit != nil {
				c.edit(&in)
			}
			got, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", c.name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got+"\n"); d != "" {
				t.Errorf("prompt (-want +got):\n%s", d)
			}
			if again, _ := Build(in); again != got {
				t.Error("a second build differs")
			}
			if !Built(got) {
				t.Error("is not recognised as built")
			}
		})
	}
}

func TestBuilt(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "Answer in JSON.": false, "x Conversation started: y": false,
		"x\n\nConversation started: Monday": true, "Conversation started: Monday": true,
	} {
		if Built(text) != want {
			t.Errorf("Built(%q) = %v", text, !want)
		}
	}
}

func TestLongFilesLoseTheirMiddle(t *testing.T) {
	for _, c := range []struct {
		name string
		text string
	}{
		{"a little too long", "BEGIN" + strings.Repeat("ä", 1000) + "END"},
		{"far too long", "BEGIN" + strings.Repeat("ä", 1_000_000) + "END"},
		{"not UTF-8", "BEGIN" + strings.Repeat("\xff", 10_000) + "END"},
		{"four-byte characters cut by the window", "BEGIN" + strings.Repeat("🙂", 10_001) + "END"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(home(t, map[string]string{"SOUL.md": c.text}))
			in.FileChars = 1000
			got, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			soul, _, _ := strings.Cut(got, "\n\nYou act through tools")
			if !strings.HasPrefix(soul, "BEGIN") || !strings.HasSuffix(soul, "END") || !strings.Contains(soul, "the middle of SOUL.md is left out") {
				t.Errorf("kept %.40q … %q", soul, soul[len(soul)-20:])
			}
			if n := utf8.RuneCountInString(soul); n > 1100 || !utf8.ValidString(soul) {
				t.Errorf("%d characters, valid %v", n, utf8.ValidString(soul))
			}
		})
	}
	whole := strings.Repeat("ä", 1000)
	in := input(home(t, map[string]string{"SOUL.md": whole}))
	in.FileChars = 1000
	if got, _ := Build(in); !strings.HasPrefix(got, whole+"\n\n") {
		t.Error("a file of just the limit was cut")
	}
}

func TestUnreadableFilesCostTheirPart(t *testing.T) {
	dir := home(t, map[string]string{"memories/USER.md": "likes tea"})
	if err := syscall.Mkfifo(filepath.Join(dir, "SOUL.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "memories/MEMORY.md"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := Build(input(dir))
	if err == nil || !strings.Contains(err.Error(), "SOUL.md: it is not a file") || !strings.Contains(err.Error(), "MEMORY.md") {
		t.Errorf("error %v", err)
	}
	if !strings.HasPrefix(got, defaultIdentity) || !strings.Contains(got, "likes tea") || strings.Contains(got, "MEMORY (") {
		t.Errorf("prompt:\n%s", got)
	}
}

func FuzzCut(f *testing.F) {
	f.Add("hello", 3)
	f.Add("ä\xff🙂", 1)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 1 + (limit%1000+1000)%1000
		got, err := readCut(strings.NewReader(text), int64(len(text)), limit, "X")
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(got) {
			t.Errorf("%q is not UTF-8", got)
		}
		if n := utf8.RuneCountInString(got); n > limit+100 {
			t.Errorf("%d characters with a limit of %d", n, limit)
		}
	})
}
