package text

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func markedAll(parts []Styled) []string {
	var out []string
	for _, p := range parts {
		out = append(out, marked(p))
	}
	return out
}

func TestSplitPrefersParagraphsThenLinesThenWords(t *testing.T) {
	for _, c := range []struct {
		name string
		md   string
		size int
		want []string
	}{
		{"fits", "short", 10, []string{"short"}},
		{"exactly fits", "0123456789", 10, []string{"0123456789"}},
		{"paragraphs", "aaa aaa\n\nbbb\nbbb\n\nccc", 18, []string{"aaa aaa\n\nbbb\nbbb", "ccc"}},
		{"lines", "aaa aaa\nbbb bbb", 12, []string{"aaa aaa", "bbb bbb"}},
		{"words", "aaaa bbbb cccc", 11, []string{"aaaa bbbb", "cccc"}},
		{"one long word", "abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		{"a cut that fits by itself", "abcd\n\nefgh", 4, []string{"abcd", "efgh"}},
		{"bold goes on", "**aaaa bbbb cccc**", 9, []string{"<bold>aaaa bbbb</bold>", "<bold>cccc</bold>"}},
		{"fence goes on", "```go\naa\n  bb\ncc\n```", 7, []string{"<pre go>aa\n  bb</pre>", "<pre go>cc</pre>"}},
		{"indentation of code is kept", "```\naaaa\n    bb\n```", 7, []string{"<pre>aaaa</pre>", "<pre>    bb</pre>"}},
		{"before a fence rather than in it", "aaaaaaa\n```\nb\nc\n```", 11, []string{"aaaaaaa", "<pre>b\nc</pre>"}},
		{"emoji count two", "😀😀😀", 4, []string{"😀😀", "😀"}},
		{"flags are not cut", "a🇩🇪🇫🇷", 7, []string{"a🇩🇪", "🇫🇷"}},
		{"marks stay with their letter", "aaae\u0301", 4, []string{"aaa", "e\u0301"}},
		{"blank", " \n\n\u200b ", 4, nil},
		{"much white space", "a" + strings.Repeat("\n", 3) + "b", 2, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Markdown(c.md).Split(Limit{Size: c.size})
			if diff := cmp.Diff(c.want, markedAll(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSplitHoldsTheLimitOfSpans(t *testing.T) {
	s := Markdown(strings.Repeat("**a** b ", 250))
	parts := s.Split(Limit{Size: 4096, Spans: 100})
	if len(parts) != 3 {
		t.Errorf("%d parts, want 3", len(parts))
	}
	for i, p := range parts {
		if len(p.Spans) > 100 {
			t.Errorf("part %d has %d spans", i, len(p.Spans))
		}
	}
}

// What a platform refuses as too long after escaping was once cut before it: the cut follows the styling.
func TestExclamationMarksFitWhateverThePlatformEscapes(t *testing.T) {
	parts := Markdown(strings.Repeat("!", 4096)).Split(Limit{Size: 4096})
	if len(parts) != 1 || UTF16Len(parts[0].Text) != 4096 {
		t.Errorf("%d parts", len(parts))
	}
}

func TestABoldSpanAcrossTheLimitIsBoldInBothParts(t *testing.T) {
	md := strings.Repeat("x", 4000) + " **" + strings.Repeat("word ", 40) + "end**"
	parts := Markdown(md).Split(Limit{Size: 4096})
	if len(parts) != 2 {
		t.Fatalf("%d parts, want 2", len(parts))
	}
	for i, p := range parts {
		if len(p.Spans) != 1 || p.Spans[0].Style != Bold {
			t.Errorf("part %d: spans %v", i, p.Spans)
		}
	}
}

func FuzzNothingIsLostAndAllIsValid(f *testing.F) {
	for _, s := range []string{
		"# a\n**b** `c` [d](https://e.fg \"h\")\n\n- i\n  1. j\n\n> k\n> ```go l\n> m\n> ```\n", "|a|b|\n|-|-|\n|c|d|e|f|",
		"![a](b) [![c](d)](https://e.f)", "```\n```\n````a b\n```\n````", "~~a~~ ***b***", "- [ ] a\n-\n- b\n\n  c", "a\\\nb  \nc",
		"\tcode\n\n    more", "<a@b.c> <https://d.e> <f>", "[a]: b\n\n[a]", "a\n===\nb\n---", "😀é\u0301\u200d👩‍👩‍👧", "&lt; \\& &#x41;",
	} {
		f.Add(s, uint16(7))
	}
	f.Fuzz(func(t *testing.T, md string, size uint16) {
		// References and check boxes are the two things that are shown by other letters than they are written with.
		md = strings.NewReplacer("&", "+", "[x]", "[ ]", "[X]", "[ ]").Replace(strings.ToValidUTF8(md, "?"))
		s := Markdown(md)
		checkNested(t, s)
		want, got := letters(md), letters(flat(s))
		if afterLanguage.MatchString(md) { // is shown before the block, and flat puts the language into it
			want, got = sorted(want), sorted(got)
		}
		if want != got {
			t.Fatalf("letters of %q\nwant %q\n got %q\n(%s)", md, want, got, marked(s))
		}
		limit := Limit{Size: 2 + int(size)%5000, Spans: 1 + int(size)%100}
		joined := ""
		for _, p := range s.Split(limit) {
			checkNested(t, p)
			if n := UTF16Len(p.Text); n > limit.Size {
				t.Fatalf("part of %d units, limit %d", n, limit.Size)
			}
			if Blank(p.Text) {
				t.Fatalf("blank part %q", p.Text)
			}
			joined += p.Text
		}
		if want, got := visible(s.Text), visible(joined); want != got {
			t.Fatalf("split lost text of %q\nwant %q\n got %q", md, want, got)
		}
	})
}

var afterLanguage = regexp.MustCompile("(```|~~~)[ \t]*[^ \t\n]+[ \t]")

func sorted(s string) string {
	r := []rune(s)
	slices.Sort(r)
	return string(r)
}

// flat is the text with addresses and languages where the source has them.
func flat(s Styled) string {
	var b strings.Builder
	for i := 0; i <= len(s.Text); i++ {
		for _, sp := range s.Spans {
			if sp.Style == Pre && sp.Start == i || sp.Style == Link && sp.End == i && s.Text[sp.Start:sp.End] != sp.Arg {
				b.WriteString(sp.Arg)
			}
		}
		if i < len(s.Text) {
			b.WriteByte(s.Text[i])
		}
	}
	return b.String()
}

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 0x2FFF && r != utf8.RuneError {
			return r
		}
		return -1
	}, s)
}

func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if blank(r) {
			return -1
		}
		return r
	}, s)
}

func checkNested(t *testing.T, s Styled) {
	t.Helper()
	if !utf8.ValidString(s.Text) {
		t.Fatalf("text is not UTF-8: %q", s.Text)
	}
	var stack []Span
	last := 0
	for _, sp := range s.Spans {
		if sp.Start < last || sp.Start >= sp.End || sp.End > len(s.Text) {
			t.Fatalf("span %+v out of order or range in %q", sp, s.Text)
		}
		if !utf8.RuneStart(s.Text[sp.Start]) || sp.End < len(s.Text) && !utf8.RuneStart(s.Text[sp.End]) {
			t.Fatalf("span %+v parts a rune of %q", sp, s.Text)
		}
		last = sp.Start
		for len(stack) > 0 && stack[len(stack)-1].End <= sp.Start {
			stack = stack[:len(stack)-1]
		}
		for _, outer := range stack {
			if sp.End > outer.End || outer.Style == sp.Style || outer.Style == Code || outer.Style == Pre {
				t.Fatalf("span %+v may not lie in %+v of %q", sp, outer, s.Text)
			}
			if (sp.Style == Code || sp.Style == Pre) && outer.Style != Quote {
				t.Fatalf("span %+v may not lie in %+v of %q", sp, outer, s.Text)
			}
		}
		stack = append(stack, sp)
	}
}
