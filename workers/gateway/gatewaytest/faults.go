package gatewaytest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// words are numbered, so that a reader can tell whether any is missing, doubled or out of place.
var word = regexp.MustCompile(`\bw(\d{5})\b`)

// longAnswer has about 50,000 characters: paragraphs with formatting, long blocks of code, a table, letters of two
// and four bytes, and a line without a place to break.
func longAnswer() (text string, words int) {
	var b strings.Builder
	next := func() string { words++; return fmt.Sprintf("w%05d", words) }
	line := func(n int) string {
		var all []string
		for range n {
			all = append(all, next())
		}
		return strings.Join(all, " ")
	}
	for part := range 12 {
		fmt.Fprintf(&b, "## Part %d %s\n\n**%s** and *%s*, `%s` 😀 ü.\n\n", part, next(), line(40), line(20), line(5))
		fmt.Fprintf(&b, "```go\n")
		for range 30 {
			fmt.Fprintf(&b, "call(%s)\n", line(6))
		}
		fmt.Fprintf(&b, "```\n\n- %s\n- %s\n\n", line(30), line(30))
		fmt.Fprintf(&b, "| a | b |\n|---|---|\n| %s | %s |\n\n", line(3), line(3))
		fmt.Fprintf(&b, "%s\n\n", strings.ReplaceAll(line(300), " ", "-"))
	}
	return b.String(), words
}

func (s Suite) long(t *testing.T) {
	r := s.rig(t)
	text, words := longAnswer()
	r.h.Script = func(u *Turn) string {
		for piece := range slices.Chunk([]rune(text), 1000) {
			u.Say(string(piece))
		}
		return text
	}
	r.p.Say(chat(0), "1", "question of length")
	r.eventually(func() string {
		return fewer(len(wordsOf(r.p.Shown(chat(0)))), words, "words shown")
	})
	r.eventually(func() string {
		for i, w := range wordsOf(r.p.Shown(chat(0))) {
			if want := fmt.Sprintf("%05d", i+1); w != want || i >= words {
				return fmt.Sprintf("word %d of the answer is %s, want %s", i+1, w, want)
			}
		}
		return ""
	})
}

func wordsOf(texts []string) []string {
	var all []string
	for _, m := range word.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		all = append(all, m[1])
	}
	return all
}

// Adapters of the existing system lost about two descriptors with each connect that failed.
func (s Suite) connects(t *testing.T) {
	r := s.rig(t)
	r.say(chat(0))
	r.answered()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.p.FailConnects(ctx, 50); err != nil {
		t.Fatal(err)
	}
	worker := r.k.Worker()
	before := worker.FDs(t)
	if err := r.p.FailConnects(ctx, 1000); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() string {
		// A connection that is just being made or closed may be among them; a leak would be hundreds.
		if now := worker.FDs(t); now > before+4 {
			return fmt.Sprintf("%d descriptors after 1,000 failed connects, %d before", now, before)
		}
		return ""
	})
	if r.k.Worker() != worker {
		t.Error("the worker died of it")
	}
	r.say(chat(0))
	r.answered()
}

func (s Suite) formatting(t *testing.T) {
	r := s.rig(t)
	p, ok := r.p.(Formatter)
	if !ok {
		t.Skip("the platform does not refuse formatting")
	}
	r.h.Script = func(u *Turn) string { return "**" + Answer(u.Text()) + "** `code` [a](https://example.org)" }
	p.RefuseFormatting(true)
	r.say(chat(0))
	r.answered()
	p.RefuseFormatting(false)
	r.say(chat(0))
	r.answered()
}

// A long wait for one chat delays no other, and nothing is lost.
func (s Suite) flood(t *testing.T) {
	r := s.rig(t)
	p, ok := r.p.(Flooder)
	if !ok {
		t.Skip("the platform has no flood limit")
	}
	const wait = 3 * time.Second
	until := time.Now().Add(wait)
	p.Flood(chat(0), wait)
	for range 3 {
		r.say(chat(0))
	}
	for range 5 {
		r.say(chat(1))
	}
	r.eventually(func() string {
		all := strings.Join(r.p.Shown(chat(1)), "\n")
		return fewer(strings.Count(all, "answer to"), 5, "answers in the chat without a flood")
	})
	// Not a measurement: the wait is many times what five answers take, so this fails only if one chat waits for the other.
	if time.Now().After(until) {
		t.Errorf("the other chat was answered only after the flooded one was free again")
	}
	r.answered()
}

// What may have arrived is not sent twice.
func (s Suite) cut(t *testing.T) {
	r := s.rig(t)
	p, ok := r.p.(Cutter)
	if !ok {
		t.Skip("nothing is sent to the platform")
	}
	r.say(chat(0))
	r.answered()
	for range 5 {
		p.CutAnswers(2)
		r.say(chat(0))
		r.answered()
	}
}

func (s Suite) blocked(t *testing.T) {
	r := s.rig(t)
	p, ok := r.p.(Blocker)
	if !ok {
		t.Skip("nobody can block on the platform")
	}
	p.Block(chat(9))
	r.p.Say(chat(9), "1", "question of one who left.")
	r.eventually(func() string { return fewer(len(r.h.Turns()), 1, "turns") })
	r.p.Say(chat(1), "1", "question of another.")
	r.eventually(func() string {
		if all := strings.Join(r.p.Shown(chat(1)), "\n"); !strings.Contains(all, Answer("question of another.")) {
			return "the other chat has no answer: " + all
		}
		return ""
	})
}
