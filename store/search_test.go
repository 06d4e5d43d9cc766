package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func search(t testing.TB, s *store.State, q store.Search) store.Found {
	t.Helper()
	f, err := s.Search(context.Background(), q)
	if err != nil {
		t.Fatalf("search %+v: %v", q, err)
	}
	return f
}

func ids(f store.Found) []int64 {
	out := []int64{}
	for _, h := range f.Hits {
		out = append(out, h.MessageID)
	}
	return out
}

// say stores a message of a chat and its answer.
func say(t testing.TB, s *store.State, chat, text, answer string) (session string) {
	t.Helper()
	a, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: chat, MessageID: fmt.Sprint(chat, text, answer), Text: text})
	if err != nil {
		t.Fatal(err)
	}
	u, err := s.Lease(context.Background(), a.TurnID, "agent-1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.FinishTurn(context.Background(), store.Finish{TurnID: u.ID, Fence: u.Fence, Reply: store.Message{Content: answer}, Outcome: store.OutcomeCompleted})
	if err != nil {
		t.Fatal(err)
	}
	return a.SessionID
}

func indexed(t testing.TB, s *store.State) {
	t.Helper()
	eventually(t, "a whole index", func() bool {
		x, err := s.IndexState(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return x.Present && !x.Stale && x.Indexed == x.Total
	})
}

func TestSearchFindsWhatHermesFinds(t *testing.T) {
	s := storetest.StateAt(t, storetest.Fixture(t, "hermes-home-2026-07/state.db"), store.Options{})
	for query, want := range readExpected(t).Search {
		got := ids(search(t, s, store.Search{Text: query, Sort: "oldest", Limit: 1000}))
		if !slices.Equal(got, want) {
			t.Errorf("%q: %d messages, not %d: %v", query, len(got), len(want), got)
		}
	}
	best := search(t, s, store.Search{Text: "invoice", Limit: 5})
	newest := search(t, s, store.Search{Text: "invoice", Sort: "newest", Limit: 5})
	if len(best.Hits) != 5 || len(newest.Hits) != 5 || !slices.IsSortedFunc(newest.Hits, func(a, b store.Hit) int { return int(b.MessageID - a.MessageID) }) {
		t.Errorf("best %v, newest %v", ids(best), ids(newest))
	}
	if !strings.Contains(best.Hits[0].Snippet, ">>>invoice<<<") || best.Hits[0].Source == "" || best.Hits[0].Time.IsZero() {
		t.Errorf("a hit is %+v", best.Hits[0])
	}
}

func TestSearchWorksInEveryOldHome(t *testing.T) {
	for _, fixture := range []string{"state-schema-v6.db", "state-schema-v8.db"} {
		path := storetest.Fixture(t, fixture)
		word := strings.Fields(storetest.Query(t, path, "SELECT content FROM messages WHERE id = 1")[0])[0]
		want := len(storetest.Query(t, path, "SELECT id FROM messages WHERE ' ' || content || ' ' LIKE ?", "%"+word+"%"))
		s := storetest.StateAt(t, path, store.Options{})
		if got := search(t, s, store.Search{Text: word}); len(got.Hits) != want || got.Partial {
			t.Errorf("%s: %q finds %d of %d", fixture, word, len(got.Hits), want)
		}
		if got := search(t, s, store.Search{Text: "看板"}); got.Partial {
			t.Errorf("%s: %+v", fixture, got)
		}
	}
}

func TestANewMessageIsFoundAtOnce(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	for i := range 20 {
		say(t, s, "1", fmt.Sprintf("zanzibar question%d", i), "a naïve 数据库看板 answer")
		for query, want := range map[string]int{"zanzibar": i + 1, fmt.Sprintf("question%d", i): 1, "NAIVE": i + 1, "看板": i + 1, "数据库看": i + 1, "zanz*": i + 1, "nothing": 0} {
			if got := search(t, s, store.Search{Text: query}); len(got.Hits) != want || got.Partial {
				t.Fatalf("round %d, %q finds %d, not %d", i, query, len(got.Hits), want)
			}
		}
	}
	indexed(t, s)
	if got := search(t, s, store.Search{Text: "zanzibar NOT question3", Limit: 50}); len(got.Hits) != 19 {
		t.Errorf("finds %d, not 19", len(got.Hits))
	}
	if got := search(t, s, store.Search{Text: "anziba", Substring: true, Limit: 50}); len(got.Hits) != 20 || !strings.Contains(got.Hits[0].Snippet, "z>>>anziba<<<r") {
		t.Errorf("a part of a word finds %d, not 20: %+v", len(got.Hits), got.Hits)
	}
}

func TestAFileIsLeftWithAWholeIndex(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		say(t, s, "1", fmt.Sprintf("zanzibar %d", i), "reply")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	storetest.Integrity(t, path)
	for query, want := range map[string]string{
		"SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'zanzibar'":                   "50",
		"SELECT count(*) FROM messages_fts_trigram WHERE messages_fts_trigram MATCH '\"anzib\"'":  "50",
		"SELECT count(*) FROM state_meta WHERE key LIKE 'fts_rebuild%'":                           "0",
		"SELECT value FROM state_meta WHERE key = 'fts_storage_version'":                          "3",
		"SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'messages_fts%'": "6",
	} {
		if got := storetest.Query(t, path, query); got[0] != want {
			t.Errorf("%s: %s, not %s", query, got[0], want)
		}
	}
	// Another program's writes keep the index whole by the triggers.
	for _, change := range []string{
		"INSERT INTO messages(session_id, role, content, timestamp) SELECT id, 'user', 'zanzibar again', 0 FROM sessions LIMIT 1",
		"UPDATE messages SET content = 'something else' WHERE id = 3", "DELETE FROM messages WHERE id = 5",
		"UPDATE messages SET role = 'tool' WHERE id = 7",
	} {
		if _, err := storetest.Exec(path, change); err != nil {
			t.Fatal(change, err)
		}
	}
	storetest.Integrity(t, path)
	s = storetest.StateAt(t, path, store.Options{})
	if got := search(t, s, store.Search{Text: "zanzibar"}); len(got.Hits) != 49 {
		t.Errorf("finds %d, not 49", len(got.Hits))
	}
}

// What another program writes while the store is open is found too: its triggers leave it to the loop.
func TestMessagesOfAnotherProgramAreFound(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	session := say(t, s, "1", "first", "reply")
	for i := range 30 {
		if _, err := storetest.Exec(path, "INSERT INTO messages(session_id, role, content, timestamp) VALUES(?, 'user', ?, 0)", session, fmt.Sprint("kilimanjaro ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := search(t, s, store.Search{Text: "kilimanjaro"}); len(got.Hits) != 30 {
		t.Errorf("finds %d, not 30", len(got.Hits))
	}
}

// A model that only calls a tool says nothing besides: its text is empty, or not there at all in a file of Hermes.
func TestAMessageWithoutATextIsFoundByItsToolCalls(t *testing.T) {
	for name, content := range map[string]string{"empty": "''", "missing": "NULL", "a mark without parts": "CAST(x'006a736f6e3a' AS TEXT)"} {
		path := t.TempDir() + "/state.db"
		s := storetest.StateAt(t, path, store.Options{})
		session := say(t, s, "1", "first", "reply")
		if _, err := storetest.Exec(path, `INSERT INTO messages(session_id, role, content, tool_calls, timestamp)
			VALUES(?, 'assistant', `+content+`, '[{"function":{"name":"terminal","arguments":"echo zanzibar"}}]', 0)`, session); err != nil {
			t.Fatal(err)
		}
		if f := search(t, s, store.Search{Text: "zanzibar"}); len(f.Hits) != 1 || !strings.Contains(f.Hits[0].Snippet, "zanzibar") {
			t.Errorf("%s: %+v", name, f.Hits)
		}
	}
}

func TestSearchLeavesOutWhatIsNotAsked(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	a, b := say(t, s, "a", "zanzibar", "zanzibar too"), say(t, s, "b", "zanzibar", "no")
	if _, err := storetest.Exec(path, "UPDATE messages SET active = 0 WHERE session_id = ? AND role = 'user'", b); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		q    store.Search
		want int
	}{
		"all":        {store.Search{}, 2},
		"a session":  {store.Search{SessionID: a}, 2},
		"taken back": {store.Search{SessionID: b}, 0},
		"a role":     {store.Search{Roles: []string{"assistant"}}, 1},
		"a source":   {store.Search{Source: "test"}, 2},
		"no source":  {store.Search{Source: "cli"}, 0},
		"except":     {store.Search{Except: []string{"test"}}, 0},
		"limit":      {store.Search{Limit: 1}, 1},
	} {
		tt.q.Text = "zanzibar"
		if got := search(t, s, tt.q); len(got.Hits) != tt.want {
			t.Errorf("%s: %d, not %d", name, len(got.Hits), tt.want)
		}
	}
}

// No query is an error, neither for the parser nor for the index that gets what it makes.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"", "a b", `"a b" c`, `"`, "a AND", "NOT a", "a NOT b OR c", "OR OR", "foo-bar.baz", "a*", "*", "(a", "content:x", "看板", "C++", "%_\\", "\x00", "a\"b", "NEAR(a b)", "^a", "ﬀ ½ ²"} {
		f.Add(q)
	}
	s := storetest.State(f, store.Options{})
	say(f, s, "1", "a b c foo-bar.baz 看板 C++ 100% x_y", "content")
	indexed(f, s)
	f.Fuzz(func(t *testing.T, text string) {
		for _, substring := range []bool{false, true} {
			if _, err := s.Search(context.Background(), store.Search{Text: text, Substring: substring}); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

func TestQueriesAreUnderstood(t *testing.T) {
	for text, want := range map[string]string{
		"deploy gateway":   `("deploy" AND "gateway")`,
		`"a b" c`:          `("a b" AND "c")`,
		"a AND NOT b OR c": `(("a") NOT "b") OR ("c")`,
		"a AND":            `("a")`,
		"NOT a":            ``,
		"foo-bar.baz*":     `("foo-bar.baz" *)`,
		`he"llo`:           `("he" AND "llo")`,
		"(+x) -- !!":       `("x")`,
	} {
		if got := store.Match(text); got != want {
			t.Errorf("%q is %s, not %s", text, got, want)
		}
	}
}
