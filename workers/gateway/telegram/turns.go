package telegram

import (
	"slices"
	"strings"
	"sync"
)

// maxTurns bounds what is remembered; the oldest goes first.
const maxTurns = 4096

// turns remembers which turns run in which chat and what they ask. It is filled by what was handed over and by what is
// shown, so that a new process learns of older turns with their next event.
type turns struct {
	mu    sync.Mutex
	open  []openTurn
	asked []question
}

type openTurn struct {
	id           string
	chat, thread string
	key          string // of the session, empty if only the chat is known
	answered     bool   // its answer is on its way
}

// same reports whether two turns are of one conversation, as far as that is known: in a group each person may have one.
func (o openTurn) same(p openTurn) bool {
	if o.chat != p.chat || o.thread != p.thread {
		return false
	}
	if o.key == "" || p.key == "" {
		return o.thread != "" || !strings.HasPrefix(o.chat, "-")
	}
	return o.key == p.key
}

// A question is an approval that waits for an answer.
type question struct {
	id           string // of the approval
	turn         string
	chat, thread string
	message      int    // that asks, 0 if it could not be sent
	text         string // of that message, as Markdown
}

// add notes a turn. What is known of its session is kept.
func (t *turns) add(o openTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.open {
		if t.open[i].id == o.id {
			if o.key != "" {
				t.open[i] = o
			}
			return
		}
	}
	t.open = append(t.open, o)
	if len(t.open) > maxTurns {
		t.open = slices.Delete(t.open, 0, 1)
	}
}

// end forgets a turn that was delivered.
func (t *turns) end(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = slices.DeleteFunc(t.open, func(o openTurn) bool { return o.id == id })
}

// answer notes that a turn has ended and its answer is being delivered.
func (t *turns) answer(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.open {
		if t.open[i].id == id {
			t.open[i].answered = true
		}
	}
	t.asked = slices.DeleteFunc(t.asked, func(q question) bool { return q.turn == id })
}

// behind reports whether an earlier turn of the same conversation has not been delivered.
func (t *turns) behind(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.open, func(o openTurn) bool { return o.id == id })
	return i > 0 && slices.ContainsFunc(t.open[:i], t.open[i].same)
}

// conversation reports whether a turn in the same place as another is of the same conversation. One that this process has
// not heard of is, as far as can be known.
func (t *turns) conversation(id, other string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.open, func(o openTurn) bool { return o.id == id })
	j := slices.IndexFunc(t.open, func(o openTurn) bool { return o.id == other })
	if i < 0 {
		return false
	}
	unheard := openTurn{chat: t.open[i].chat, thread: t.open[i].thread}
	if j >= 0 {
		unheard = t.open[j]
	}
	return t.open[i].same(unheard)
}

// ask notes a question; one with the same id is replaced.
func (t *turns) ask(q question) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = slices.DeleteFunc(t.asked, func(o question) bool { return o.id == q.id })
	t.asked = append(t.asked, q)
	if len(t.asked) > maxTurns {
		t.asked = slices.Delete(t.asked, 0, 1)
	}
}

// question returns a question by id.
func (t *turns) question(id string) (question, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.asked, func(q question) bool { return q.id == id })
	if i < 0 {
		return question{}, false
	}
	return t.asked[i], true
}

// answered takes a question away and returns it.
func (t *turns) answered(id string) (question, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.asked, func(q question) bool { return q.id == id })
	if i < 0 {
		return question{}, false
	}
	q := t.asked[i]
	t.asked = slices.Delete(t.asked, i, i+1)
	return q, true
}

// questions returns what waits for an answer in a chat, oldest first.
func (t *turns) questions(p place) []question {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []question
	for _, q := range t.asked {
		if q.chat == p.chat && q.thread == p.thread {
			out = append(out, q)
		}
	}
	return out
}
