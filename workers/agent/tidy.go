package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

const (
	// maxCalls bounds the calls of one reply. Models ask for a dozen; thousands are one that lost its way.
	maxCalls    = 64
	maxCallID   = 512 // what the supervisor takes
	maxToolName = 64  // what providers take
)

// tidyCalls makes the calls of a reply fit to be stored: known names as the tools have them, ids that are unique within
// the turn. It is a function of the reply and of what is stored, as a repeated step must be the same step.
func (t *turn) tidyCalls(calls []*turnv1.ToolCall, seq uint32) []*turnv1.ToolCall {
	if len(calls) > maxCalls {
		t.log.Warn("too many tool calls in one reply", "calls", len(calls), "made", maxCalls)
		t.feed.notice(fmt.Sprintf("The model asked for %d tool calls at once; the first %d are made.", len(calls), maxCalls))
		calls = calls[:maxCalls]
	}
	used := map[string]bool{}
	for _, m := range t.steps {
		for _, c := range m.ToolCalls {
			used[c.Id] = true
		}
	}
	out := make([]*turnv1.ToolCall, len(calls))
	for i, c := range calls {
		id := c.Id
		if id == "" || len(id) > maxCallID || used[id] || !printable(id) {
			id = madeUpID(seq, i, used)
		}
		used[id] = true
		out[i] = &turnv1.ToolCall{Id: id, Name: t.toolName(c.Name), ArgumentsJson: strings.ToValidUTF8(c.ArgumentsJson, "�")}
	}
	return out
}

// madeUpID makes an id of nine letters and digits, which is all that the strictest provider (Mistral) takes.
func madeUpID(seq uint32, index int, used map[string]bool) string {
	for n := 0; ; n++ {
		if id := fmt.Sprintf("c%04d%04d", seq%10_000, (index+n)%10_000); !used[id] {
			return id
		}
	}
}

// toolName finds the tool that a model means: it may write read-file, ReadFile or read_file_tool. A name that is none
// stays, in letters that providers take (they would refuse every later request of the session otherwise), and the call
// tells the model which tools there are.
func (t *turn) toolName(name string) string {
	if t.specs[name] != nil {
		return name
	}
	for _, candidate := range []string{snake(name), strings.TrimSuffix(snake(name), "_tool")} {
		if t.specs[candidate] != nil {
			return candidate
		}
	}
	name = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-') {
			return r
		}
		return '_'
	}, name)
	if name == "" {
		return "unnamed_tool"
	}
	return name[:min(len(name), maxToolName)]
}

// snake writes a name in small letters with underscores.
func snake(name string) string {
	var b strings.Builder
	var last rune
	for _, r := range strings.TrimSpace(name) {
		switch {
		case r == '-' || r == ' ' || r == '.':
			r = '_'
		case unicode.IsUpper(r):
			if unicode.IsLower(last) || unicode.IsDigit(last) {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
		last = r
	}
	return b.String()
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// lanes groups calls by what must not run side by side: calls on the same file or folder, unless both only read. Calls of
// one lane run in their order; every call is in one lane.
func lanes(calls []*turnv1.ToolCall, readOnly func(tool string) bool) [][]int {
	lane := make([]int, len(calls))
	paths := make([]string, len(calls))
	for i, c := range calls {
		lane[i], paths[i] = i, pathOf(c)
		for j := range i {
			if paths[i] == "" || !overlap(paths[i], paths[j]) || readOnly(c.Name) && readOnly(calls[j].Name) {
				continue
			}
			from, to := max(lane[i], lane[j]), min(lane[i], lane[j])
			for k := range i + 1 {
				if lane[k] == from {
					lane[k] = to
				}
			}
		}
	}
	var out [][]int
	at := map[int]int{}
	for i, l := range lane {
		if _, ok := at[l]; !ok {
			at[l] = len(out)
			out = append(out, nil)
		}
		out[at[l]] = append(out[at[l]], i)
	}
	return out
}

// pathOf returns the file that a call is about, empty if it names none.
func pathOf(c *turnv1.ToolCall) string {
	args, err := object(c.ArgumentsJson)
	if err != nil {
		return ""
	}
	path, _ := args["path"].(string)
	if path == "" {
		return ""
	}
	return filepath.Clean(path)
}

// overlap says whether one of two paths is the other or holds it.
func overlap(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	if len(a) > len(b) {
		a, b = b, a
	}
	return a == b || a == "." && !filepath.IsAbs(b) || strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/")
}
