package tools

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

//go:embed memory.md
var memoryText string

// entrySeparator stands on a line of its own between two entries of a memory file.
const entrySeparator = "\n§\n"

type memoryArgs struct {
	Target     string            `json:"target" jsonschema:"which of the two" enum:"memory,user"`
	Action     string            `json:"action,omitempty" jsonschema:"what to do" enum:"add,replace,remove"`
	Content    string            `json:"content,omitempty" jsonschema:"text of the entry, for add and replace"`
	OldText    string            `json:"old_text,omitempty" jsonschema:"text that occurs in exactly one entry, for replace and remove"`
	Operations []memoryOperation `json:"operations,omitempty" jsonschema:"several actions at once, instead of action"`
}

type memoryOperation struct {
	Action  string `json:"action" enum:"add,replace,remove"`
	Content string `json:"content,omitempty"`
	OldText string `json:"old_text,omitempty"`
}

func (a memoryArgs) operations() []memoryOperation {
	if a.Action != "" {
		return []memoryOperation{{a.Action, a.Content, a.OldText}}
	}
	return a.Operations
}

func (a memoryArgs) Validate() error {
	if (a.Action == "") == (len(a.Operations) == 0) {
		return errors.New(`give either "action" or "operations"`)
	}
	for _, op := range a.operations() {
		switch content := strings.TrimSpace(op.Content); {
		case op.Action != "remove" && content == "":
			return fmt.Errorf(`%s needs "content"`, op.Action)
		case op.Action != "add" && strings.TrimSpace(op.OldText) == "":
			return fmt.Errorf(`%s needs "old_text"`, op.Action)
		case slices.Contains(strings.Split(content, "\n"), "§"):
			return errors.New(`"content" must not have a line that is only §; that separates entries`)
		case strings.ContainsFunc(content, invisible):
			return errors.New(`"content" holds characters that cannot be seen`)
		}
	}
	return nil
}

// invisible finds characters by which a text says other things to a model than to a person.
func invisible(r rune) bool {
	return r == utf8.RuneError || unicode.Is(unicode.Cf, r) && r != '\u200d' || unicode.Is(unicode.Cc, r) && r != '\n' && r != '\t' || r >= 0xe0000 && r <= 0xe0fff
}

type memoryResult struct {
	Success bool   `json:"success"`
	Done    bool   `json:"done"`
	Target  string `json:"target"`
	Usage   string `json:"usage"`
	Entries int    `json:"entry_count"`
	Message string `json:"message"`
}

// memory keeps notes in two files of the home.
type memory struct {
	dir    string
	limits map[string]int // characters, by target
	now    func() time.Time
}

// memoryFiles are the files by target.
var memoryFiles = map[string]string{"memory": "MEMORY.md", "user": "USER.md"}

func (t *memory) tool() plugins.Tool {
	return plugins.Func("memory", memoryText, t.run, plugins.Timeout(5*time.Second, 30*time.Second))
}

func (t *memory) run(ctx context.Context, _ *plugins.Call, a memoryArgs) (memoryResult, error) {
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return memoryResult{}, plain(err)
	}
	name := filepath.Join(t.dir, memoryFiles[a.Target])
	unlock, err := lock(ctx, name+".lock")
	if err != nil {
		return memoryResult{}, err
	}
	defer unlock()
	raw, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return memoryResult{}, plain(err)
	}
	before := parseEntries(string(raw))
	entries, message, err := apply(before, a.operations())
	if err != nil {
		return memoryResult{}, fmt.Errorf("%w\nCurrent entries (%s):\n%s", err, t.usage(a.Target, before), strings.Join(before, entrySeparator))
	}
	text := strings.Join(entries, entrySeparator)
	if n := utf8.RuneCountInString(text); n > t.limits[a.Target] && n > utf8.RuneCountInString(strings.Join(before, entrySeparator)) {
		return memoryResult{}, fmt.Errorf("%s would have %d of at most %d characters; nothing was changed. Shorten or remove entries in the same call (operations), then add.\nCurrent entries (%s):\n%s",
			a.Target, n, t.limits[a.Target], t.usage(a.Target, before), strings.Join(before, entrySeparator))
	}
	if !slices.Equal(entries, before) {
		if err := t.store(name, raw, before, text); err != nil {
			return memoryResult{}, err
		}
	}
	return memoryResult{Success: true, Done: true, Target: a.Target, Usage: t.usage(a.Target, entries), Entries: len(entries), Message: message}, nil
}

// store writes the file. One that somebody has edited into another form is kept beside it once.
func (t *memory) store(name string, raw []byte, before []string, text string) error {
	if old := strings.TrimSpace(string(raw)); old != "" && old != strings.Join(before, entrySeparator) {
		if _, err := replace(name+".bak."+t.now().UTC().Format("20060102T150405"), raw); err != nil {
			return fmt.Errorf("keep %s as it was: %w", name, plain(err))
		}
	}
	_, err := os.Lstat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	if _, err := replace(name, []byte(text)); err != nil {
		return plain(err)
	}
	if fresh {
		return plain(os.Chmod(name, 0o600)) // notes about a person are nobody else's business
	}
	return nil
}

// usage says how full a memory is, as the prompt does.
func (t *memory) usage(target string, entries []string) string {
	n, limit := utf8.RuneCountInString(strings.Join(entries, entrySeparator)), t.limits[target]
	return fmt.Sprintf("%d%% - %d/%d chars", n*100/limit, n, limit)
}

// parseEntries reads a memory file: entries without space around them, each once.
func parseEntries(text string) []string {
	var entries []string
	var entry []string
	take := func() {
		if e := strings.TrimSpace(strings.Join(entry, "\n")); e != "" && !slices.Contains(entries, e) {
			entries = append(entries, e)
		}
		entry = nil
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		if strings.TrimSpace(line) == "§" {
			take()
			continue
		}
		entry = append(entry, line)
	}
	take()
	return entries
}

// apply returns the entries after some operations.
func apply(before []string, operations []memoryOperation) (entries []string, message string, err error) {
	entries = slices.Clone(before)
	for _, op := range operations {
		content := strings.TrimSpace(strings.ReplaceAll(op.Content, "\r\n", "\n"))
		if op.Action == "add" {
			if slices.Contains(entries, content) {
				message = "the entry was there already"
				continue
			}
			entries, message = append(entries, content), "added"
			continue
		}
		k, err := unique(entries, op.OldText)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w; nothing was changed", op.Action, err)
		}
		switch {
		case op.Action == "remove":
			entries, message = slices.Delete(entries, k, k+1), "removed"
		case slices.Contains(entries, content) && entries[k] != content:
			entries, message = slices.Delete(entries, k, k+1), "replaced by an entry that was there already"
		default:
			entries[k], message = content, "replaced"
		}
	}
	if len(operations) > 1 {
		message = fmt.Sprintf("%d operations done", len(operations))
	}
	return entries, message, nil
}

// unique finds the one entry that holds a text.
func unique(entries []string, text string) (int, error) {
	text = strings.TrimSpace(text)
	found := -1
	for k, e := range entries {
		if e == text {
			return k, nil
		}
		if strings.Contains(e, text) {
			if found >= 0 {
				return 0, fmt.Errorf("%q occurs in more than one entry; give more of it", text)
			}
			found = k
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("%q occurs in no entry", text)
	}
	return found, nil
}

// lockPoll is how often a lock that another process holds is tried again. Hermes holds it for one write.
const lockPoll = 20 * time.Millisecond

// lock takes the lock that Hermes takes too, so that both may run on one home.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, plain(err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: another process holds it: %w", name, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
