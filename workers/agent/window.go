package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A window is how much of a conversation the model gets to read. It is whole until a provider says that this is too much: how
// many tokens a model takes is known to nobody else for sure. What is stored stays whole.
type window struct {
	skip    int // messages of the time before the turn that are left out, the oldest
	results int // bytes of the result of a tool, 0 for all
}

const (
	// widestResult is the first limit of results, which is a quarter of it each time after: a model of 8,000 tokens, the smallest
	// in use, reads three of the narrowest.
	widestResult, narrowestResult = 16 << 10, 1 << 10
)

const (
	leftOutNote = "[The beginning of this conversation is left out here, as it is longer than you can read.]"
	searchNote  = "[The beginning of this conversation is left out here, as it is longer than you can read. The tool session_search finds what is in it.]"
	leftOutTold = "This conversation is longer than the model %s can read: from now on it is not told of the oldest messages. They are kept."
)

// narrow leaves out more: first most of very long results, then half of what there is of the time before, again and again, and when
// that is nothing more of the results. False means that no less can be said.
func (w *window) narrow(history, steps []*turnv1.Message) bool {
	longest, limit := longestResult(history[w.skip:], steps), widestResult
	for limit > 0 && (limit >= longest || w.results != 0 && limit >= w.results) {
		limit /= 4
	}
	left := len(history) - w.skip
	switch {
	case left > 0 && limit < widestResult:
		w.skip = afterWhole(history, w.skip+(left+1)/2)
	case limit < narrowestResult:
		return false
	default:
		w.results = limit
	}
	return true
}

func longestResult(parts ...[]*turnv1.Message) (longest int) {
	for _, m := range slices.Concat(parts...) {
		if m.Role == roleTool {
			longest = max(longest, len(m.Content))
		}
	}
	return longest
}

// afterWhole returns the next place at which a turn begins, as a result without its call is of no use.
func afterWhole(history []*turnv1.Message, at int) int {
	for at < len(history) && history[at].Role != roleUser {
		at++
	}
	return at
}

// of returns what of a conversation is in the window. Note tells the model of what is not.
func (w window) of(history, steps []*turnv1.Message, note string) (before, now []*turnv1.Message) {
	if w.skip > 0 {
		before = append(before, &turnv1.Message{Role: roleUser, Content: note})
	}
	return append(before, w.shortened(history[w.skip:])...), w.shortened(steps)
}

func (w window) shortened(messages []*turnv1.Message) []*turnv1.Message {
	if w.results == 0 {
		return messages
	}
	out := make([]*turnv1.Message, len(messages))
	for i, m := range messages {
		if out[i] = m; m.Role == roleTool && len(m.Content) > w.results {
			out[i] = proto.CloneOf(m)
			out[i].Content = ends(m.Content, w.results)
		}
	}
	return out
}

// ends returns the beginning and the end of a text, and says how much is missing between them.
func ends(text string, limit int) string {
	head, tail := text[:limit/2], text[len(text)-limit/2:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf("\n[… %d bytes are left out here, as you cannot read as much …]\n", len(text)-len(head)-len(tail)) +
		strings.ToValidUTF8(tail, "")
}

const maxWindows = 256 // of conversations that one process remembers

// Windows are those of the conversations that were once too long for their model, so that this is found out once and not in
// each turn. They are safe for concurrent use.
type windows struct {
	mu    sync.Mutex
	known map[windowKey]window
}

type windowKey struct{ session, model string }

// get returns the window of a conversation that has so many messages from before the turn.
func (w *windows) get(session, model string, history int) window {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.known[windowKey{session, model}]
	if found.skip > history {
		found.skip = 0 // messages were deleted: it is another conversation, and a shorter one
	}
	return found
}

func (w *windows) put(session, model string, to window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil || len(w.known) >= maxWindows {
		w.known = map[windowKey]window{} // which costs those that go on one more refusal
	}
	w.known[windowKey{session, model}] = to
}

func (w *windows) forget(session, model string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.known, windowKey{session, model})
}

// narrow has the model read less than it did, after a provider refused what there was. False means that no less can be said.
func (t *turn) narrow() bool {
	w, told := t.window(), t.window().skip > 0
	if !w.narrow(t.history, t.steps) {
		// It is this turn that is too long. The ones after it have nothing to do with that, and may read what went before.
		t.agent.windows.forget(t.session.Id, t.model)
		return false
	}
	t.agent.windows.put(t.session.Id, t.model, w)
	t.log.Warn("the conversation is longer than the model can read", "model", t.model, "left_out", w.skip, "longest_result", w.results)
	if !told && w.skip > 0 {
		t.feed.notice(fmt.Sprintf(leftOutTold, t.model))
	}
	return true
}

func (t *turn) window() window { return t.agent.windows.get(t.session.Id, t.model, len(t.history)) }
