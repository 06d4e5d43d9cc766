package text

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// marked writes the spans into the text, so that a table can show both.
func marked(s Styled) string {
	var b strings.Builder
	var stack []Span
	next := 0
	closeUpTo := func(at int) {
		for len(stack) > 0 && stack[len(stack)-1].End <= at {
			fmt.Fprintf(&b, "</%s>", stack[len(stack)-1].Style)
			stack = stack[:len(stack)-1]
		}
	}
	for i := 0; i <= len(s.Text); i++ {
		closeUpTo(i)
		for next < len(s.Spans) && s.Spans[next].Start == i {
			sp := s.Spans[next]
			if sp.Arg != "" {
				fmt.Fprintf(&b, "<%s %s>", sp.Style, sp.Arg)
			} else {
				fmt.Fprintf(&b, "<%s>", sp.Style)
			}
			stack = append(stack, sp)
			next++
		}
		if i < len(s.Text) {
			b.WriteByte(s.Text[i])
		}
	}
	return b.String()
}

func TestMarkdownIsRead(t *testing.T) {
	for _, c := range []struct{ name, md, want string }{
		{"plain", "Hello, world", "Hello, world"},
		{"emphasis", "a **b *c* d** ~~e~~ _f_", "a <bold>b <italic>c</italic> d</bold> <strike>e</strike> <italic>f</italic>"},
		{"code", "run `ls -l <x>` now", "run <code>ls -l <x></code> now"},
		{"bold around code", "**a `b` c**", "<bold>a </bold><code>b</code><bold> c</bold>"},
		{"a link around code stays a link", "[`os.Open`](https://pkg.go.dev/os)", "<link https://pkg.go.dev/os>os.Open</link>"},
		{"heading", "# Title **x**\ntext", "<bold>Title x</bold>\n\ntext"},
		{"paragraphs and lines", "one\ntwo\n\n\n\nthree", "one\ntwo\n\nthree"},
		{"settings without a fence", "model:\n  provider: x  # y\n  **base**: z\n    - 1", "model:\n  provider: x  # y\n<bold>  base</bold>: z\n    - 1"},
		{"bullets", "- a\n- b\n  - c\n- d", "• a\n• b\n  • c\n• d"},
		{"numbers", "3. a\n4. b\n\n   more", "3. a\n\n4. b\n\n   more"},
		{"tasks", "- [x] done\n- [ ] open", "• ☑ done\n• ☐ open"},
		{"fence", "see\n```go\nx := 1\n\n  y()\n```\nend", "see\n\n<pre go>x := 1\n\n  y()</pre>\n\nend"},
		{"fence without an end", "```sh\nls", "<pre sh>ls</pre>"},
		{"fence with a file name", "```go main.go\nx\n```", "main.go\n<pre go>x</pre>"},
		{"fence that is all opening line", "```the whole text", "the whole text"},
		{"fence in a list", "1. do\n   ```sh\n   ls\n   ```\n2. go", "1. do\n<pre sh>ls</pre>\n2. go"},
		{"indented code", "a\n\n    x  y", "a\n\n<pre>x  y</pre>"},
		{"quote", "> a\n> **b**\n\nc", "<quote>a\n<bold>b</bold></quote>\n\nc"},
		{"quote in quote is one", "> a\n> > b", "<quote>a\n\nb</quote>"},
		{"quote with code", "> a\n> ```\n> x\n> ```", "<quote>a\n\n<pre>x</pre></quote>"},
		{"link", "[text](https://example.com/a?b=1&c=2)", "<link https://example.com/a?b=1&c=2>text</link>"},
		{"link with title", `[t](https://example.com "more")`, "<link https://example.com>t</link> (more)"},
		{"link without text", "[](https://example.com)", "<link https://example.com>https://example.com</link>"},
		{"link that a chat drops", "[file](./notes.md) [host](http://localhost:80/x)", "file (./notes.md) host (http://localhost:80/x)"},
		{"image", "![a cat](https://example.com/cat.png)", "<link https://example.com/cat.png>a cat</link>"},
		{"autolink", "<https://example.com/x>", "https://example.com/x"},
		{"html stays visible", "<b>x</b> <script>alert(1)</script>\n\n<div>\n**y**\n</div>", "<b>x</b> <script>alert(1)</script>\n\n<div>\n<bold>y</bold>\n</div>"},
		{"a definition is a sentence", "[note]: see-below\n\n[a][note]", "[note]: see-below\n\n[a][note]"},
		{"escapes", `\*not bold\* &lt;b&gt; \&lt; 1 &amp;&amp; 2`, "*not bold* <b> &lt; 1 && 2"},
		{"snake_case", "a_b_c and 2*3*4", "a_b_c and 2<italic>3</italic>4"},
		{"rule", "a\n\n---\n\nb", "a\n\n———\n\nb"},
		{"table", "|a|b|\n|-|-|\n|1|`x`|", "<pre>a │ b\n──┼──\n1 │ x</pre>"},
		{"table with a row too long", "|a|b|\n|-|-|\n|1|2|3|", "<pre>a │ b\n──┼───┼──\n1 │ 2 │ 3</pre>"},
		{"wide table", "|name|" + strings.Repeat("w", 60) + "|\n|-|-|\n|1|2|", "<bold>name | " + strings.Repeat("w", 60) + "</bold>\n1 | 2"},
		{"crlf", "a\r\n\r\nb", "a\n\nb"},
		{"broken utf-8", "a\xffb", "a\uFFFDb"},
		{"empty", "", ""},
		{"only a line", "\n\n", ""},
		{"empty emphasis", "****", "———"},
		{"empty fence", "```\n```", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, marked(Markdown(c.md))); diff != "" {
				t.Errorf("Markdown(%q) (-want +got):\n%s", c.md, diff)
			}
		})
	}
}

func TestInlineShowsAddresses(t *testing.T) {
	s := Markdown("see **[docs](https://example.com/d)** and [more](https://example.com/m).")
	want := "see docs (https://example.com/d) and more (https://example.com/m)."
	if got := s.Inline(); got != want {
		t.Errorf("Inline() = %q, want %q", got, want)
	}
}

func TestAnOverlongTextIsNotParsed(t *testing.T) {
	md := strings.Repeat("**x** ", maxMarkdown/6+1)
	if got := Markdown(md); got.Text != md || got.Spans != nil {
		t.Errorf("got %d bytes with %d spans", len(got.Text), len(got.Spans))
	}
}
