package api

import (
	"strings"
	"testing"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// play feeds events written as a line: "1:text" is a delta of step 1, "1=text" a snapshot, "start" an attempt,
// "tool" a tool call, "final:text" the end.
func play(events []string) (sent []string) {
	g := newGrowing()
	for _, e := range events {
		switch {
		case e == "start":
			g.started()
		case e == "tool":
			g.tool()
		case strings.HasPrefix(e, "final:"):
			sent = append(sent, g.final(strings.TrimPrefix(e, "final:")))
		default:
			sent = append(sent, g.text(&turnv1.TextDelta{Seq: uint32(e[0] - '0'), Text: e[2:], Snapshot: e[1] == '='}))
		}
	}
	return sent
}

func TestTextOnlyGrows(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   string
	}{
		{"plain", []string{"start", "1:Hel", "1:lo", "final:Hello"}, "Hello"},
		{"deltas that were dropped", []string{"start", "1:Hel", "final:Hello"}, "Hello"},
		{"no deltas", []string{"start", "final:Hello"}, "Hello"},
		{"an ended turn", []string{"final:Hello"}, "Hello"},
		{"no text at all", []string{"start", "final:"}, ""},
		{"space that was not stored", []string{"start", "1:Hello\n", "final:Hello"}, "Hello\n"},
		{"space that was not stored, and more", []string{"start", "1: Hello ", "final:Hello World"}, " Hello  World"},
		{"steps", []string{"start", "1:Let me see.", "tool", "3:It is 4.", "final:It is 4."}, "Let me see.\n\nIt is 4."},
		{"steps that end a line", []string{"start", "1:See:\n", "tool", "3:4", "final:4"}, "See:\n\n4"},
		{"steps that end a paragraph", []string{"start", "1:See:\n\n", "tool", "3:4", "final:4"}, "See:\n\n4"},
		{"a last step without deltas", []string{"start", "1:See", "tool", "final:4"}, "See\n\n4"},
		{"a last step that says the same", []string{"start", "1:See", "tool", "final:See"}, "See\n\nSee"},
		{"the second attempt says the same", []string{"start", "1:Hel", "start", "1:He", "1:llo", "final:Hello"}, "Hello"},
		{"the second attempt begins with a snapshot", []string{"start", "1:Hel", "start", "1=Hello", "1: you", "final:Hello you"}, "Hello you"},
		{"the second attempt says less", []string{"start", "1:Hello", "start", "1:Hel", "final:Hel"}, "Hello" + marker + "Hel"},
		{"the second attempt says something else", []string{"start", "1:Hello", "start", "1:He", "1:y you", "1:!", "final:Hey you!"}, "Hello" + marker + "Hey you!"},
		{"the second attempt goes on after a stored step", []string{"start", "1:See.", "tool", "start", "3:4", "final:4"}, "See.\n\n4"},
		{"cut in the second step", []string{"start", "1:See.", "tool", "3:It", "start", "3:It is 4", "final:It is 4"}, "See.\n\nIt is 4"},
		{"followed anew", []string{"start", "1:See", "start", "1=See", "1: you", "final:See you"}, "See you"},
		{"the end says something else", []string{"start", "1:Hel", "final:stopped"}, "Hel" + marker + "stopped"},
		{"three attempts", []string{"start", "1:a", "start", "1:b", "start", "1:bc", "final:bc"}, "a" + marker + "bc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(play(c.events), ""); got != c.want {
				t.Errorf("sent %q, want %q", got, c.want)
			}
		})
	}
}

// FuzzGrowing plays random lives of a turn: whatever was sent before, the stream ends with the whole reply, and
// without a marker or a step nothing is there twice.
func FuzzGrowing(f *testing.F) {
	f.Add("Hello you", []byte{0, 2, 9, 0, 3, 9, 9})
	f.Add("aaaaaaa", []byte{1, 9, 1, 9, 1, 1})
	f.Add("x", []byte{9, 8, 7})
	f.Fuzz(func(t *testing.T, reply string, moves []byte) {
		reply = strings.TrimSpace(strings.ToValidUTF8(reply, ""))
		letters := []rune(reply)
		events, at, other := []string{"start"}, 0, false
		for _, m := range moves {
			switch {
			case m == 9: // the agent dies and another begins anew
				events, at = append(events, "start"), 0
			case m == 8: // the follower is taken on anew
				events = append(events, "start", "1="+string(letters[:at]))
			case m == 7: // the model says something else in this attempt
				events, other = append(events, "1:\x00else"), true
			default:
				n := min(int(m), len(letters)-at)
				events = append(events, "1:"+string(letters[at:at+n]))
				at += n
			}
		}
		events = append(events, "final:"+reply)
		got := strings.Join(play(events), "")
		switch {
		case reply == "":
		case !strings.HasSuffix(strings.TrimSpace(got), reply):
			t.Errorf("%q: sent %q, which does not end with the reply %q", events, got, reply)
		case !other && got != reply:
			t.Errorf("%q: sent %q, want %q once", events, got, reply)
		}
	})
}
