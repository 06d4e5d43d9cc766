package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func exportAll(t testing.TB, s *store.State) string {
	t.Helper()
	list, _, err := s.ListSessions(context.Background(), store.Selection{Archived: true, Hidden: true})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b store.SessionInfo) int { return strings.Compare(a.ID, b.ID) })
	var b bytes.Buffer
	for _, i := range list {
		if err := s.Export(context.Background(), i.ID, &b); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func importAll(t testing.TB, s *store.State, text string) (results []store.ImportResult, err error) {
	t.Helper()
	parents := map[string]string{}
	err = store.ReadImport(strings.NewReader(text), func(i store.Imported) error {
		r, err := s.Import(context.Background(), i)
		results = append(results, r)
		if i.Parent != "" {
			parents[i.ID] = i.Parent
		}
		return err
	})
	return results, errors.Join(err, s.LinkParents(context.Background(), parents))
}

func TestWhatIsExportedIsImportedAsItWas(t *testing.T) {
	for _, fixture := range []string{"hermes-home-2026-07/state.db", "state-schema-v6.db"} {
		path := storetest.Fixture(t, fixture)
		if fixture[0] == 'h' {
			for _, change := range []string{
				"UPDATE messages SET content = char(0) || 'json:[{\"type\": \"text\", \"text\": \"é\"}]' WHERE id = 5",
				"UPDATE messages SET content = CAST(x'6180ff' AS TEXT), reasoning_details = '{\"a\":  1}' WHERE id = 7",
				"UPDATE sessions SET model_config = '{\"x\": 1.0}', parent_session_id = (SELECT id FROM sessions ORDER BY id DESC LIMIT 1) WHERE rowid = 3",
			} {
				if _, err := storetest.Exec(path, change); err != nil {
					t.Fatal(err)
				}
			}
		}
		from := storetest.StateAt(t, path, store.Options{})
		text := exportAll(t, from)
		to := storetest.State(t, store.Options{})
		results, err := importAll(t, to, text)
		if err != nil || len(results) == 0 {
			t.Fatal(len(results), err)
		}
		if again := exportAll(t, to); again != text {
			a, b := strings.Split(text, "\n"), strings.Split(again, "\n")
			for i := range a {
				if i >= len(b) || a[i] != b[i] {
					t.Fatalf("%s: line %d differs:\n%.3000s\n%.3000s", fixture, i+1, a[i], b[min(i, len(b)-1)])
				}
			}
		}
		// Once more changes nothing, and into a home with messages the numbers are new ones.
		results, err = importAll(t, to, text)
		if err != nil || !results[0].Exists {
			t.Errorf("a second import: %+v, %v", results[0], err)
		}
		full := storetest.State(t, store.Options{})
		say(t, full, "1", "zanzibar", "reply")
		if _, err := importAll(t, full, text); err != nil {
			t.Fatal(err)
		}
		indexed(t, full)
		if got := search(t, full, store.Search{Text: "zanzibar"}); len(got.Hits) != 1 {
			t.Errorf("finds %d", len(got.Hits))
		}
	}
}

// Hermes' own export has values that it derived, and JSON where its columns have text.
func TestAnExportOfHermesIsImported(t *testing.T) {
	line := `{"id":"20260101_101010_abcdef","source":"cli","title":"Plants","started_at":1767262210.5,"model_config":"{}","archived":0,"timings":{"x":1},"lineage":["a"],` +
		`"messages":[{"id":7,"session_id":"20260101_101010_abcdef","role":"user","content":[{"type":"text","text":"water the plants"}],"timestamp":1767262211},` +
		`{"id":8,"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"terminal","arguments":"{}"}}],"timestamp":1767262212.25}]}`
	s := storetest.State(t, store.Options{})
	if _, err := importAll(t, s, "\n"+line+"\n\n"); err != nil {
		t.Fatal(err)
	}
	talk, err := s.Conversation(context.Background(), "20260101_101010_abcdef")
	if err != nil || len(talk) != 2 || talk[0].Content != "water the plants" || talk[1].ToolCalls[0].Name != "terminal" || talk[0].ID != 7 {
		t.Fatalf("%+v, %v", talk, err)
	}
	if got := search(t, s, store.Search{Text: "plants"}); len(got.Hits) != 1 {
		t.Errorf("finds %d", len(got.Hits))
	}
}

func TestABadLineIsNamed(t *testing.T) {
	good := `{"id":"a","source":"cli","started_at":1,"messages":[]}` + "\n"
	for text, want := range map[string]string{
		good + "nonsense":                 "line 2: invalid: it is not a JSON object",
		good + good:                       "line 2: invalid: session a is in line 1 already",
		`{"source":"cli","started_at":1}`: "line 1: invalid: id is missing",
		`{"id":"a","started_at":1}`:       "line 1: invalid: source is missing",
		`{"id":"a","source":"cli"}`:       "line 1: invalid: started_at is missing",
		`{"id":5,"source":"c"}`:           "line 1: invalid: id is not a text",
		`[1]`:                             "line 1: invalid: it is not a JSON object: a array is not what belongs there",
		`{"id":"a","source":"c","started_at":1,"messages":{}}`:                              "line 1: invalid: messages: a object is not what belongs there",
		`{"id":"a","source":"c","started_at":1,"messages":[{"role":"user"}]}`:               "line 1: invalid: message 1: timestamp is missing",
		`{"id":"a","source":"c","started_at":1,"messages":[{"role":"king","timestamp":1}]}`: `line 1: invalid: message 1: role: "king" is not system, user, assistant or tool`,
		"{\"id\":\"a\\n\",\"source\":\"c\",\"started_at\":1}":                               `line 1: invalid: id: "a\n" cannot be one`,
		`{"id":"a","source":"c","started_at":1e999}`:                                        "line 1: invalid: started_at",
		"\xff": "line 1: invalid: it is not UTF-8",
	} {
		err := store.ReadImport(strings.NewReader(text), func(store.Imported) error { return nil })
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%.80q: %v, not %s", text, err, want)
		}
	}
}

func FuzzImport(f *testing.F) {
	f.Add(`{"id":"a","source":"cli","started_at":1,"messages":[{"role":"user","content":"x","timestamp":1.5,"id":3,"display_order":3}],"model_usage":[{"model":"m"}],"system_prompts":{"h":"p"}}`)
	f.Add(`{"id":"a","source":"cli","started_at":1,"title":"t","parent_session_id":"a","pinned":"x","messages":[{"role":"tool","content":{"base64":"AP8="},"timestamp":1}]}`)
	f.Add("[]\n{}\nnull")
	s := storetest.State(f, store.Options{})
	f.Fuzz(func(t *testing.T, text string) {
		err := store.ReadImport(strings.NewReader(text), func(i store.Imported) error {
			r, err := s.Import(context.Background(), i)
			if err != nil || r.Exists {
				return nil // a column of Hermes' that does not take the value
			}
			var b bytes.Buffer
			if err := s.Export(context.Background(), i.ID, &b); err != nil {
				t.Fatalf("export of %q: %v", text, err)
			}
			return store.ReadImport(&b, func(store.Imported) error { return nil })
		})
		if err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func TestASessionIsFoundByWhatAPersonKnows(t *testing.T) {
	ctx := context.Background()
	s := storetest.StateAt(t, storetest.Fixture(t, "hermes-home-2026-07/state.db"), store.Options{})
	for name, want := range map[string]string{
		"20260609_101406_338d65f0": "20260609_101406_338d65f0", "20260609_101406": "20260609_101406_338d65f0",
		"Session about naïve 38": "20260609_101406_338d65f0", store.Latest: "20260609_101406_338d65f0",
	} {
		if got, err := s.FindSession(ctx, name); err != nil || got.ID != want {
			t.Errorf("%q is %q, %v", name, got.ID, err)
		}
	}
	if _, err := s.FindSession(ctx, "2026"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("the beginning of several: %v", err)
	}
	if _, err := s.FindSession(ctx, "nobody"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := s.Rename(ctx, "20260609_101406", "  A\tnew  title\u202e "); err != nil {
		t.Error(err)
	}
	if got, err := s.FindSession(ctx, "A new title"); err != nil || got.ID != "20260609_101406_338d65f0" {
		t.Errorf("%+v, %v", got, err)
	}
	for title, want := range map[string]error{"": store.ErrInvalid, "a\nb": store.ErrInvalid, strings.Repeat("x", 101): store.ErrInvalid, "Session about garden 37": store.ErrExists} {
		if _, err := s.Rename(ctx, "20260609_101406", title); !errors.Is(err, want) {
			t.Errorf("%q: %v", title, err)
		}
	}
}

func TestASessionWithARunningTurnIsLeftAlone(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	a := accept(t, s, "1")
	for name, do := range map[string]func() error{
		"delete":  func() error { _, err := s.DeleteSession(ctx, a.SessionID); return err },
		"archive": func() error { _, err := s.Archive(ctx, a.SessionID, true); return err },
		"dry run": func() error { _, err := s.Doomed(ctx, a.SessionID); return err },
	} {
		if err := do(); !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), "turn") {
			t.Errorf("%s: %v", name, err)
		}
	}
	finish(t, s, lease(t, s, a.TurnID), "reply")
	if _, err := s.Archive(ctx, a.SessionID, true); err != nil {
		t.Error(err)
	}
	if list, _, err := s.ListSessions(ctx, store.Selection{}); err != nil || len(list) != 0 {
		t.Errorf("an archived session is listed: %v, %v", list, err)
	}
	gone, err := s.DeleteSession(ctx, a.SessionID)
	if err != nil || len(gone) != 1 {
		t.Fatal(gone, err)
	}
	if got, err := s.Accept(ctx, store.Inbound{Platform: "test", ChatID: "1", MessageID: "1", Text: "x"}); err != nil || !got.Duplicate && got.SessionID == a.SessionID {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPruneTakesWholeConversationsThatHaveEnded(t *testing.T) {
	ctx := context.Background()
	path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
	old := []string{}
	for n, id := range storetest.Query(t, path, "SELECT id FROM sessions ORDER BY id LIMIT 6") {
		old = append(old, id)
		if _, err := storetest.Exec(path, "UPDATE sessions SET ended_at = 1000, end_reason = 'cli_close', started_at = ? WHERE id = ?", n, id); err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range []string{
		fmt.Sprintf("UPDATE sessions SET end_reason = 'compression' WHERE id = '%s'", old[0]), // goes on with 1, which is open
		fmt.Sprintf("UPDATE sessions SET parent_session_id = '%s', ended_at = NULL, end_reason = NULL WHERE id = '%s'", old[0], old[1]),
		fmt.Sprintf("UPDATE sessions SET parent_session_id = '%s', model_config = '{\"_delegate_from\": 1}' WHERE id = '%s'", old[2], old[3]),
	} {
		if _, err := storetest.Exec(path, change); err != nil {
			t.Fatal(err)
		}
	}
	s := storetest.StateAt(t, path, store.Options{})
	if _, err := storetest.Exec(path, "UPDATE sessions SET pinned = 1 WHERE id = ?", old[4]); err != nil {
		t.Fatal(err)
	}
	list, left, err := s.Prunable(ctx, store.Prune{Filter: store.Selection{StartedBefore: time.Unix(100, 0)}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range list {
		got = append(got, i.ID)
	}
	if want := []string{old[2], old[3], old[5]}; !slices.Equal(got, want) {
		t.Errorf("prunes %v, not %v; left %v", got, want, left)
	}
	if text := strings.Join(left, "\n"); !strings.Contains(text, "pinned") || !strings.Contains(text, "its continuation") || !strings.Contains(text, "1 session is still open") {
		t.Errorf("left %s", text)
	}
	gone, err := s.DeleteSession(ctx, old[2])
	if err != nil || len(gone) != 2 {
		t.Errorf("deleted %v, %v: what it delegated goes too", gone, err)
	}
}

func TestStatsCount(t *testing.T) {
	path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
	s := storetest.StateAt(t, path, store.Options{})
	st, err := s.Stats(context.Background())
	if err != nil || st.Sessions != 40 || st.Messages != 832 || st.Sources[0] != (store.SourceStats{Source: "cron", Sessions: 13, Messages: st.Sources[0].Messages}) || st.Bytes == 0 || st.Index.Percent() != 100 {
		t.Errorf("%+v, %v", st, err)
	}
	// More than one read looks at, from a source that is spread over all of them.
	if _, err := storetest.Exec(path, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
		INSERT INTO sessions(id, source, started_at, message_count, input_tokens, estimated_cost_usd, archived)
		SELECT 'many' || i, CASE i % 100 WHEN 0 THEN 'rare' ELSE 'many' END, 1, 2, 3, 0.5, i % 2 FROM n`); err != nil {
		t.Fatal(err)
	}
	grown, err := s.Stats(context.Background())
	if err != nil || grown.Sessions != 2540 || grown.Messages != st.Messages+5000 || grown.Tokens != st.Tokens+7500 || grown.Cost != st.Cost+1250 ||
		grown.Archived != st.Archived+1250 || grown.Sources[0] != (store.SourceStats{Source: "many", Sessions: 2475, Messages: 4950}) ||
		!slices.Contains(grown.Sources, store.SourceStats{Source: "rare", Sessions: 25, Messages: 50}) || !slices.Contains(grown.Sources, st.Sources[0]) {
		t.Errorf("%+v, %v", grown, err)
	}
	list, more, err := s.ListSessions(context.Background(), store.Selection{Source: "cron", Limit: 5})
	if err != nil || len(list) != 5 || more == 0 || list[0].Preview == "" {
		t.Errorf("%d and %d more, %v", len(list), more, err)
	}
}
