package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// expected is what Hermes itself answers on the home in testdata.
type expected struct {
	Sessions []struct {
		ID, Source   string
		Title        *string
		MessageCount int `json:"message_count"`
	}
	Conversation []struct {
		Role, Content string
		ToolCallID    *string `json:"tool_call_id"`
		ToolName      *string `json:"tool_name"`
	} `json:"conversation_of_first"`
	Search map[string][]int64
	Tasks  []struct {
		ID, Title, Status string
		Assignee          *string
		Priority          int
	}
	Stats struct {
		ByStatus    map[string]int64            `json:"by_status"`
		ByAssignee  map[string]map[string]int64 `json:"by_assignee"`
		OldestReady int64                       `json:"oldest_ready_age_seconds"`
		Now         int64
	}
}

func readExpected(t *testing.T) (e expected) {
	t.Helper()
	data, err := os.ReadFile("testdata/hermes-home-2026-07/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// dump returns every value of the tables that a file has, by table.
func dump(t *testing.T, path string, tables map[string]string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for table, columns := range tables {
		out[table] = storetest.Query(t, path, "SELECT "+columns+" FROM "+table+" ORDER BY rowid")
	}
	return out
}

// tablesOf returns the columns of each ordinary table, quoted so that types show.
func tablesOf(t *testing.T, path string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, row := range storetest.Query(t, path, `SELECT t.name, c.name FROM pragma_table_list AS t, pragma_table_info(t.name) AS c
		WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite%' ORDER BY t.name, c.cid`) {
		table, column, _ := strings.Cut(row, "|")
		if out[table] != "" {
			out[table] += ", "
		}
		out[table] += `quote("` + column + `")`
	}
	return out
}

func TestAHermesHomeKeepsEveryValue(t *testing.T) {
	for _, fixture := range []string{"state-schema-v6.db", "state-schema-v8.db", "hermes-home-2026-07/state.db"} {
		t.Run(fixture, func(t *testing.T) {
			path := storetest.Fixture(t, fixture)
			tables := tablesOf(t, path)
			before := dump(t, path, tables)
			storetest.StateAt(t, path, store.Options{})
			if after := dump(t, path, tables); !reflect.DeepEqual(after, before) {
				t.Error("values have changed")
			}
			if copied := dump(t, path+store.SnapshotSuffix, tables); !reflect.DeepEqual(copied, before) {
				t.Error("the snapshot is not the file as it was")
			}
		})
	}
}

func TestABoardOfHermesKeepsEveryValue(t *testing.T) {
	for _, fixture := range []string{"hermes-home-2026-07/kanban.db", "hermes-home-2026-07/kanban/boards/ops/kanban.db"} {
		path := storetest.Fixture(t, fixture)
		tables := tablesOf(t, path)
		before := dump(t, path, tables)
		storetest.BoardAt(t, path, "default", store.Options{})
		if after := dump(t, path, tables); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: values have changed", fixture)
		}
	}
}

func TestAHermesHomeTakesNewMessages(t *testing.T) {
	for _, fixture := range []string{"state-schema-v6.db", "state-schema-v8.db", "hermes-home-2026-07/state.db"} {
		t.Run(fixture, func(t *testing.T) {
			ctx := context.Background()
			path := storetest.Fixture(t, fixture)
			version := storetest.Query(t, path, "SELECT version FROM schema_version")
			s := storetest.StateAt(t, path, store.Options{})
			list, err := s.Sessions(ctx, "", 0)
			if err != nil || len(list) == 0 {
				t.Fatal(len(list), err)
			}
			old := list[0]
			a, err := s.Accept(ctx, store.Inbound{Platform: "telegram", ChatID: "1", MessageID: "1", SessionID: old.ID, Text: "zanzibar question"})
			if err != nil || a.SessionID != old.ID {
				t.Fatal(a, err)
			}
			u := lease(t, s, a.TurnID)
			finish(t, s, u, "zanzibar reply")
			talk, err := s.Conversation(ctx, old.ID)
			if err != nil || len(talk) != old.Messages+2 {
				t.Fatalf("%d messages, there were %d: %v", len(talk), old.Messages, err)
			}
			now, err := s.Session(ctx, old.ID)
			if err != nil || now.Messages != old.Messages+2 || now.ToolCalls != old.ToolCalls {
				t.Errorf("counts are %+v, %v", now, err)
			}
			found := storetest.Query(t, path, "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'zanzibar'")
			if found[0] != "2" {
				t.Errorf("Hermes' index finds %s of 2 new messages", found[0])
			}
			if got := storetest.Query(t, path, "SELECT version FROM schema_version"); !slices.Equal(got, version) {
				t.Errorf("schema_version is %v, was %v", got, version)
			}
		})
	}
}

func TestAHermesHomeReadsAsHermesReadsIt(t *testing.T) {
	ctx := context.Background()
	want := readExpected(t)
	s := storetest.StateAt(t, storetest.Fixture(t, "hermes-home-2026-07/state.db"), store.Options{})
	list, err := s.Sessions(ctx, "", len(want.Sessions))
	if err != nil || len(list) != len(want.Sessions) {
		t.Fatal(len(list), err)
	}
	for i, w := range want.Sessions {
		if got := list[i]; got.ID != w.ID || got.Source != w.Source || got.Title != deref(w.Title) || got.Messages != w.MessageCount {
			t.Errorf("session %d is %+v, not %+v", i, got, w)
		}
	}
	first := storetest.Query(t, storetest.Fixture(t, "hermes-home-2026-07/state.db"), "SELECT id FROM sessions ORDER BY started_at LIMIT 1")[0]
	talk, err := s.Conversation(ctx, first)
	if err != nil || len(talk) != len(want.Conversation) {
		t.Fatal(len(talk), err)
	}
	for i, w := range want.Conversation {
		got := talk[i]
		if got.Role != w.Role || got.Content != w.Content || got.ToolCallID != deref(w.ToolCallID) || got.ToolName != deref(w.ToolName) {
			t.Errorf("message %d is %+v, not %+v", i, got, w)
		}
		if got.Role == "assistant" && got.Content == "" && (len(got.ToolCalls) != 1 || got.ToolCalls[0].Name != "terminal" ||
			got.ToolCalls[0].Arguments != `{"command": "uptime"}`) {
			t.Errorf("tool calls of message %d are %+v", i, got.ToolCalls)
		}
	}
}

func TestABoardReadsAsHermesReadsIt(t *testing.T) {
	want := readExpected(t)
	b := storetest.BoardAt(t, storetest.Fixture(t, "hermes-home-2026-07/kanban.db"), "default", store.Options{})
	list, err := b.Tasks(context.Background(), "", 1000)
	if err != nil || len(list) != len(want.Tasks) {
		t.Fatal(len(list), err)
	}
	for i, w := range want.Tasks {
		if got := list[i]; got.ID != w.ID || got.Title != w.Title || got.Status != w.Status || got.Assignee != deref(w.Assignee) || got.Priority != w.Priority {
			t.Errorf("task %d is %+v, not %+v", i, got, w)
		}
	}
}

func TestABoardIsCountedAsHermesCountsIt(t *testing.T) {
	want := readExpected(t).Stats
	now := func() time.Time { return time.Unix(want.Now, 0) }
	b := storetest.BoardAt(t, storetest.Fixture(t, "hermes-home-2026-07/kanban.db"), "default", store.Options{Now: now})
	got, err := b.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got.ByStatus, want.ByStatus) || !reflect.DeepEqual(got.ByAssignee, want.ByAssignee) {
		t.Errorf("counted %v and %v, not %v and %v", got.ByStatus, got.ByAssignee, want.ByStatus, want.ByAssignee)
	}
	if got.Now != want.Now || got.Now-got.OldestReady != want.OldestReady {
		t.Errorf("the oldest ready task is %d s old, not %d", got.Now-got.OldestReady, want.OldestReady)
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// A file of a later Hermes has things of which nobody here knows. They stay.
func TestUnknownTablesAndColumnsStay(t *testing.T) {
	path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
	for _, change := range []string{
		"ALTER TABLE messages ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",
		"ALTER TABLE sessions ADD COLUMN weather TEXT",
		"UPDATE sessions SET weather = 'rain'",
		"CREATE TABLE session_daily_usage(session_id TEXT, day TEXT, PRIMARY KEY(session_id, day))",
		"INSERT INTO session_daily_usage VALUES('x', '2026-12-01')",
		"UPDATE schema_version SET version = 40",
	} {
		if _, err := storetest.Exec(path, change); err != nil {
			t.Fatal(change, err)
		}
	}
	s := storetest.StateAt(t, path, store.Options{})
	finish(t, s, lease(t, s, accept(t, s, "1").TurnID), "reply")
	for query, want := range map[string]string{
		"SELECT DISTINCT mood FROM messages":                                       "calm",
		"SELECT DISTINCT coalesce(weather, 'none') FROM sessions ORDER BY 1":       "none,rain",
		"SELECT day FROM session_daily_usage":                                      "2026-12-01",
		"SELECT version FROM schema_version":                                       "40",
		"SELECT count(*) > 0 FROM pragma_table_info('messages') WHERE name='mood'": "1",
	} {
		if got := strings.Join(storetest.Query(t, path, query), ","); got != want {
			t.Errorf("%s: %s, not %s", query, got, want)
		}
	}
}

// A newer schema is no reason to refuse a file, another meaning of what is used here is.
func TestAnotherMeaningOfTheTablesIsRefused(t *testing.T) {
	for name, change := range map[string]string{
		"renamed":    "ALTER TABLE messages RENAME COLUMN finish_reason TO why",
		"required":   "CREATE TABLE m2 AS SELECT * FROM messages WHERE 0; DROP TABLE messages; CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL, token_count INTEGER, finish_reason TEXT, shard TEXT NOT NULL)",
		"other type": "ALTER TABLE sessions DROP COLUMN tool_call_count; ALTER TABLE sessions ADD COLUMN tool_call_count BLOB",
	} {
		t.Run(name, func(t *testing.T) {
			path := storetest.Fixture(t, "state-schema-v8.db")
			for _, statement := range []string{"DROP TABLE messages_fts", "DROP TRIGGER messages_fts_insert; DROP TRIGGER messages_fts_delete; DROP TRIGGER messages_fts_update", change} {
				if _, err := storetest.Exec(path, statement); err != nil && statement == change {
					t.Fatal(err)
				}
			}
			if _, err := storetest.Exec(path, "UPDATE schema_version SET version = 77"); err != nil {
				t.Fatal(err)
			}
			before := storetest.Query(t, path, "SELECT name FROM sqlite_schema ORDER BY 1")
			_, err := store.OpenState(context.Background(), path, store.Options{})
			if !errors.Is(err, store.ErrTooNew) || !strings.Contains(err.Error(), "77") || !strings.Contains(err.Error(), "31") {
				t.Fatalf("open says %v", err)
			}
			if after := storetest.Query(t, path, "SELECT name FROM sqlite_schema ORDER BY 1"); !slices.Equal(after, before) {
				t.Error("the refused file was changed")
			}
		})
	}
}

// A row of a cjk index cannot be written by a SQLite without Hermes' tokenizer.
func TestAnIndexThatCannotBeOpenedCostsNoMessage(t *testing.T) {
	path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
	for _, change := range []string{
		"CREATE VIRTUAL TABLE messages_fts_cjk USING fts5(content)",
		`CREATE TRIGGER messages_fts_cjk_insert AFTER INSERT ON messages BEGIN
			INSERT INTO messages_fts_cjk(rowid, content) VALUES(new.id, new.content); END`,
		`PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE VIRTUAL TABLE messages_fts_cjk USING fts5(content, tokenize=''cjk_unicode61'')'
			WHERE name = 'messages_fts_cjk'`,
	} {
		if _, err := storetest.Exec(path, change); err != nil {
			t.Fatal(change, err)
		}
	}
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	accepted := accept(t, s, "1")
	u := lease(t, s, accepted.TurnID)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := storetest.Query(t, path, "SELECT value FROM state_meta WHERE key = 'fts_cjk_stale'"); len(got) != 1 {
		t.Error("the index is not marked as stale")
	}
	if got := storetest.Query(t, path, "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'hello'"); got[0] != "1" {
		t.Errorf("the other index finds %s of 1 message of %s", got[0], u.ID)
	}
	if got := storetest.Query(t, path, "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE '%cjk%'"); len(got) != 0 {
		t.Errorf("triggers that cannot work are left: %v", got)
	}
}

// A damaged index is derived data: the message is stored without it.
func TestADamagedIndexCostsNoMessage(t *testing.T) {
	for name, harm := range map[string]string{
		"all blocks":    "UPDATE messages_fts_data SET block = zeroblob(20)",
		"structure":     "UPDATE messages_fts_data SET block = x'deadbeefdeadbeefdeadbeef' WHERE id = 10",
		"no structure":  "DELETE FROM messages_fts_data WHERE id = 10",
		"lost table":    "DROP TABLE messages_fts_idx",
		"trigram":       "DELETE FROM messages_fts_trigram_data",
		"config":        "UPDATE messages_fts_config SET v = 99 WHERE k = 'version'",
		"lost contents": "DROP TABLE messages_fts_content",
	} {
		t.Run(name, func(t *testing.T) {
			path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
			if _, err := storetest.Exec(path, harm); err != nil {
				t.Fatal(err)
			}
			s, err := store.OpenState(context.Background(), path, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				finish(t, s, lease(t, s, accept(t, s, fmt.Sprint(i)).TurnID), "reply")
			}
			if h := s.Health(); h.State == "failed" {
				t.Errorf("health is %+v", h)
			}
			indexed(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			storetest.Integrity(t, path)
			for _, index := range []string{"messages_fts", "messages_fts_trigram"} {
				if got := storetest.Query(t, path, "SELECT count(*) FROM "+index+" WHERE "+index+" MATCH 'reply OR invoice'"); got[0] != "479" {
					t.Errorf("%s finds %s of 479 messages after it was built again", index, got[0])
				}
			}
			if got := storetest.Query(t, path, "SELECT count(*) FROM messages WHERE content LIKE 'hello %' OR content = 'reply'"); got[0] != "6" {
				t.Errorf("%s messages, not 6", got[0])
			}
		})
	}
}

// The index is damaged while the store is open: that is found by the write that meets it.
func TestAnIndexDamagedWhileOpenIsDetached(t *testing.T) {
	path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	finish(t, s, lease(t, s, accept(t, s, "1").TurnID), "reply")
	if _, err := storetest.Exec(path, "DROP TABLE messages_fts_idx"); err != nil {
		t.Fatal(err)
	}
	finish(t, s, lease(t, s, accept(t, s, "2").TurnID), "reply")
	if h := s.Health(); h.State != "degraded" || !strings.Contains(h.Detail, "full-text index") {
		t.Errorf("health is %+v", h)
	}
	if err := s.Request(context.Background(), func(exec execFunc) error { return exec("INSERT INTO nothing VALUES(1)") }); err == nil {
		t.Error("a wrong request worked")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := storetest.Query(t, path, "SELECT count(*) FROM messages WHERE session_id = 'hs_probe'"); got[0] != "0" {
		t.Error("a probe was left behind")
	}
}

// Damage of the data is another matter: nothing more is written.
func TestADamagedTableFailsTheStore(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	accept(t, s, "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, row := range storetest.Query(t, path, "SELECT rootpage FROM sqlite_schema WHERE name IN ('hs_turns', 'hs_inbox', 'messages')") {
		overwritePage(t, path, row)
	}
	if s, err = store.OpenState(context.Background(), path, store.Options{}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: "2"})
	if !errors.Is(err, store.ErrFailed) {
		t.Errorf("a write to a damaged table: %v", err)
	}
	if h := s.Health(); h.State != "failed" || !strings.Contains(h.Detail, "damaged") {
		t.Errorf("health is %+v", h)
	}
	if err := s.Close(); !errors.Is(err, store.ErrFailed) {
		t.Errorf("close says %v", err)
	}
}

func overwritePage(t *testing.T, path, page string) {
	t.Helper()
	number, err := strconv.ParseInt(page, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("damage", 600)), (number-1)*4096); err != nil {
		t.Fatal(err)
	}
}
