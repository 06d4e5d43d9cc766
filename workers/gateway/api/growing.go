package api

import (
	"strings"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// marker stands between text that was streamed already and the text of an attempt that says something else. What a
// client has read cannot be taken back, so it is told.
const marker = "\n\n[The answer was interrupted here and starts again.]\n\n"

// A growing is the text of a turn over all its attempts and steps, as one text that only grows. Its methods
// return what is to be sent now.
//
// Steps that ended are stored and not said again by a later attempt; the step that was cut is. As long as the later
// attempt says the same again nothing is sent, then it goes on where the text was.
type growing struct {
	sent map[uint32]string // by step: what was sent
	now  map[uint32]string // by step: what the present attempt has said
	step uint32            // the step that text was last sent for
	any  bool              // something was sent
	open bool              // step may still grow: no tool call came after it
	end  string            // the last bytes sent, for the space between steps
}

func newGrowing() *growing {
	return &growing{sent: map[uint32]string{}, now: map[uint32]string{}}
}

// started begins an attempt.
func (g *growing) started() { clear(g.now) }

// tool ends the text of a step.
func (g *growing) tool() { g.open = false }

// text takes a delta.
func (g *growing) text(d *turnv1.TextDelta) string {
	now := d.Text
	if !d.Snapshot {
		now = g.now[d.Seq] + d.Text
	}
	g.now[d.Seq] = now
	sent := g.sent[d.Seq]
	switch {
	case strings.HasPrefix(now, sent):
		return g.send(d.Seq, now[len(sent):], now, "")
	case strings.HasPrefix(sent, now):
		return "" // says again what was sent
	}
	return g.send(d.Seq, now, now, marker)
}

// final takes the text of the reply, which is that of the last step, and returns what of it is missing.
func (g *growing) final(text string) string {
	sent := g.sent[g.step]
	said, before := strings.TrimSpace(text), strings.TrimSpace(sent)
	switch {
	case said == "":
		return ""
	case !g.open || before == "":
		return g.send(g.step+1, text, text, "")
	case strings.HasPrefix(text, sent):
		return g.send(g.step, text[len(sent):], text, "")
	case strings.HasPrefix(said, before): // a stored reply may have lost the space around it
		return g.send(g.step, said[len(before):], text, "")
	}
	return g.send(g.step+1, text, text, marker)
}

// send notes that all of a step up to now is sent with this piece.
func (g *growing) send(step uint32, piece, now, before string) string {
	if piece == "" {
		return ""
	}
	if before == "" && g.any && step != g.step {
		before = g.gap()
	}
	g.sent[step], g.step = now, step
	g.any, g.open = true, true
	piece = before + piece
	g.end = (g.end + piece)[max(0, len(g.end)+len(piece)-2):]
	return piece
}

// gap is what makes a new paragraph after what was sent.
func (g *growing) gap() string {
	switch {
	case strings.HasSuffix(g.end, "\n\n"):
		return ""
	case strings.HasSuffix(g.end, "\n"):
		return "\n"
	}
	return "\n\n"
}
