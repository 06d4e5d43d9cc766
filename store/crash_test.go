package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

const (
	crashChats = 16
	crashSteps = 4
)

func init() { children["accept messages"] = acceptMessages }

// acceptMessages works as a supervisor does after a crash: it takes up the open turns, then accepts messages of several
// chats without end, each chat from two messages before its last, as a platform delivers again. Each answer of the store
// is told on standard output.
func acceptMessages(args []string) error {
	ctx := context.Background()
	s, err := store.OpenState(ctx, args[0], store.Options{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(format string, a ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stdout, format+"\n", a...)
	}
	open, err := s.Open(ctx)
	if err != nil {
		return err
	}
	for _, u := range open {
		if _, err := s.Requeue(ctx, u.ID, u.Fence); err != nil {
			return err
		}
		if err := answer(ctx, s, u.ID, tell); err != nil {
			return err
		}
	}
	counts, err := s.Counts(ctx)
	if err != nil || counts.Queued+counts.Running > 0 {
		return errors.Join(err, fmt.Errorf("open turns are left: %+v", counts))
	}
	var wg sync.WaitGroup
	errs := make(chan error, crashChats)
	for chat := range crashChats {
		wg.Go(func() { errs <- chatForever(ctx, s, chat, tell) })
	}
	return <-errs
}

func chatForever(ctx context.Context, s *store.State, chat int, tell func(string, ...any)) error {
	first := 0
	sessions, err := s.Sessions(ctx, "test", 1000)
	if err != nil {
		return err
	}
	for _, x := range sessions {
		if x.ChatID == fmt.Sprint(chat) {
			first = max(0, x.Messages/(crashSteps+2)-2)
		}
	}
	for i := first; ; i++ {
		a, err := s.Accept(ctx, store.Inbound{Platform: "test", ChatID: fmt.Sprint(chat), MessageID: fmt.Sprint(i), Text: fmt.Sprintf("question %d/%d", chat, i)})
		if err != nil {
			return err
		}
		tell("accepted %d/%d %s", chat, i, a.TurnID)
		if err := answer(ctx, s, a.TurnID, tell); err != nil {
			return err
		}
	}
}

// answer runs a turn from where it stands to its end.
func answer(ctx context.Context, s *store.State, id string, tell func(string, ...any)) error {
	u, err := s.Lease(ctx, id, "agent-1")
	if errors.Is(err, store.ErrExists) {
		return nil // done before the crash
	}
	if err != nil {
		return err
	}
	for seq := max(u.NextSeq, 2) - 1; seq <= crashSteps; seq++ { // the last step is stored once more
		ids, err := s.AppendSteps(ctx, id, u.Fence, []store.Message{{Seq: seq, Role: "assistant", Content: fmt.Sprintf("step %s/%d", id, seq)}}, "")
		if err != nil {
			return err
		}
		tell("stored %s/%d %d", id, seq, ids[0])
	}
	if _, err := s.FinishTurn(ctx, store.Finish{TurnID: id, Fence: u.Fence, Outcome: store.OutcomeCompleted, Outbox: true,
		Reply: store.Message{Seq: crashSteps + 1, Content: "reply " + id}}); err != nil {
		return err
	}
	tell("finished %s", id)
	return nil
}

// acknowledged is what children have been answered, over all their lives.
type acknowledged struct {
	accepted map[string]string // chat/message → turn
	stored   map[string]string // turn/seq → row id
	finished map[string]bool
}

func (a *acknowledged) line(t *testing.T, line string) {
	f := strings.Fields(line)
	switch {
	case len(f) == 3 && f[0] == "accepted":
		if was := a.accepted[f[1]]; was != "" && was != f[2] {
			t.Errorf("message %s has the turns %s and %s", f[1], was, f[2])
		}
		a.accepted[f[1]] = f[2]
	case len(f) == 3 && f[0] == "stored":
		if was := a.stored[f[1]]; was != "" && was != f[2] {
			t.Errorf("step %s has the rows %s and %s", f[1], was, f[2])
		}
		a.stored[f[1]] = f[2]
	case len(f) == 2 && f[0] == "finished":
		a.finished[f[1]] = true
	default: // cut by the kill
	}
}

// check compares the file of a killed child with what it was answered.
func (a *acknowledged) check(t *testing.T, path string) {
	t.Helper()
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	storetest.Integrity(t, path)
	have := map[string]string{}
	for _, row := range storetest.Query(t, path, "SELECT chat_id || '/' || message_id, turn_id FROM hs_inbox") {
		key, turn, _ := strings.Cut(row, "|")
		have[key] = turn
	}
	for key, turn := range a.accepted {
		if have[key] != turn {
			t.Errorf("accepted message %s has turn %q, not %q", key, have[key], turn)
		}
	}
	rows := map[string]string{}
	for _, row := range storetest.Query(t, path, "SELECT p.turn_id || '/' || p.seq, p.message_id FROM hs_steps AS p JOIN messages AS m ON m.id = p.message_id") {
		key, id, _ := strings.Cut(row, "|")
		rows[key] = id
	}
	for key, id := range a.stored {
		if rows[key] != id {
			t.Errorf("stored step %s has row %q, not %q", key, rows[key], id)
		}
	}
	done := map[string]bool{}
	for _, id := range storetest.Query(t, path, "SELECT t.id FROM hs_turns AS t JOIN hs_outbox AS o ON o.key = 'turn/' || t.id WHERE t.state = 'done'") {
		done[id] = true
	}
	for id := range a.finished {
		if !done[id] {
			t.Errorf("finished turn %s is not done or has no outbox row", id)
		}
	}
	for what, query := range map[string]string{
		"text stored twice":         "SELECT content FROM messages GROUP BY content HAVING count(*) > 1",
		"message without its step":  "SELECT id FROM messages WHERE id NOT IN (SELECT message_id FROM hs_steps)",
		"wrong count of a session":  "SELECT id FROM sessions AS s WHERE message_count <> (SELECT count(*) FROM messages WHERE session_id = s.id)",
		"two sessions of one chat":  "SELECT chat_id FROM sessions GROUP BY chat_id HAVING count(*) > 1",
		"turn without its message":  "SELECT id FROM hs_turns WHERE id NOT IN (SELECT turn_id FROM hs_inbox)",
		"outbox row without a turn": "SELECT key FROM hs_outbox AS o WHERE NOT EXISTS (SELECT 1 FROM hs_turns WHERE id = o.turn_id AND state = 'done')",
	} {
		for _, row := range storetest.Query(t, path, query) {
			t.Errorf("%s: %s", what, row)
		}
	}
}

// TestKillLosesNothingAcknowledged kills a writing process again and again. STORE_KILLS sets how often.
func TestKillLosesNothingAcknowledged(t *testing.T) {
	kills := 10
	if testing.Short() {
		kills = 3
	}
	if v := os.Getenv("STORE_KILLS"); v != "" {
		if _, err := fmt.Sscan(v, &kills); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(rand.Uint32())
	if v := os.Getenv("STORE_SEED"); v != "" {
		if _, err := fmt.Sscan(v, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("STORE_SEED=%d STORE_KILLS=%d", seed, kills)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "state.db")
	a := &acknowledged{map[string]string{}, map[string]string{}, map[string]bool{}}
	for range kills {
		c := startChild(t, "accept messages", path)
		for n := 1 + random.IntN(400); n > 0; n-- {
			if !c.lines.Scan() {
				_ = c.wait()
				t.Fatalf("the child ended by itself: %s", c.errs.String())
			}
			a.line(t, c.lines.Text())
		}
		_ = c.cmd.Process.Kill()
		for c.lines.Scan() {
			a.line(t, c.lines.Text())
		}
		_ = c.cmd.Wait()
		a.check(t, path)
	}
	t.Logf("%d accepted, %d stored, %d finished", len(a.accepted), len(a.stored), len(a.finished))
}
