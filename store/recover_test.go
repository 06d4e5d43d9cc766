package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// manyRows makes a store with n messages of one session, and returns its path.
func manyRows(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Request(context.Background(), func(exec func(string, ...any) error) error {
		return errors.Join(
			exec("INSERT INTO sessions(id, source, started_at, title) VALUES('s', 'test', 1, 'the one')"),
			exec("CREATE TABLE mine(x DATETIME, y BLOB)"),
			exec("INSERT INTO mine VALUES('2026-12-01 10:00', x'00ff')"),
			exec("ALTER TABLE messages ADD COLUMN later TEXT"),
			exec(`INSERT INTO messages(session_id, role, content, timestamp, later)
				WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
				SELECT 's', 'user', 'message ' || i || ' ' || hex(randomblob(100)), i, 'x' FROM n`, n))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// pageOf is where the page begins that holds a message.
func pageOf(b []byte, text string) int { return bytes.Index(b, []byte(text)) / 4096 * 4096 }

func recovery(t testing.TB, source string, partial bool) (*store.Recovery, string, error) {
	t.Helper()
	output := filepath.Join(t.TempDir(), "recovered.db")
	before, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.Recover(context.Background(), store.RecoverOptions{Source: source, Output: output, AllowPartial: partial})
	after, rerr := os.ReadFile(source)
	if rerr != nil || !slices.Equal(before, after) {
		t.Error("the source was changed: ", rerr)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(output), "hermes-session-recovery-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return r, output, err
}

func TestASoundFileIsRecoveredWhole(t *testing.T) {
	source := manyRows(t, 3000)
	r, output, err := recovery(t, source, false)
	if err != nil || !r.Complete || !r.Verified || r.Partial || r.Lost() != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, query := range []string{
		"SELECT count(*), max(id), min(later) FROM messages", "SELECT id, title FROM sessions", "SELECT x, hex(y), typeof(x) FROM mine",
		"SELECT version FROM schema_version", "SELECT value FROM hs_meta WHERE key = 'migration'", "SELECT seq FROM sqlite_sequence WHERE name = 'messages'",
	} {
		if got, want := storetest.Query(t, output, query), storetest.Query(t, source, query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	storetest.StateAt(t, output, store.Options{}) // it opens, and is sound afterwards
}

func TestDamagedPagesCostOnlyTheirRows(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(b []byte)
		most int // messages lost
	}{
		"a page of zeros": {func(b []byte) { clear(b[pageOf(b, "message 1500 "):][:4096]) }, 60},
		"a page of garbage": {func(b []byte) {
			r := rand.New(rand.NewPCG(1, 2))
			page := b[pageOf(b, "message 1500 "):][:4096]
			for i := range page {
				page[i] = byte(r.Uint32())
			}
		}, 60},
		"ten pages": {func(b []byte) {
			for i := range 10 {
				clear(b[pageOf(b, fmt.Sprintf("message %d ", 500+200*i)):][:4096])
			}
		}, 400},
		"no header":       {func(b []byte) { clear(b[:100]) }, 0},
		"a changed magic": {func(b []byte) { copy(b, "garbage") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			source := manyRows(t, 3000)
			b, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			c.harm(b)
			if err := os.WriteFile(source, b, 0o600); err != nil {
				t.Fatal(err)
			}
			r, output, err := recovery(t, source, true)
			if err != nil || r.Complete || !r.Verified {
				t.Fatalf("%+v, %v", r, err)
			}
			saved := 0
			if _, err := fmt.Sscan(storetest.Query(t, output, "SELECT count(*) FROM messages")[0], &saved); err != nil || saved < 3000-c.most {
				t.Errorf("%d of 3000 messages are saved, %v; %+v", saved, err, r.Tables)
			}
			storetest.StateAt(t, output, store.Options{})
		})
	}
}

func TestACutFileKeepsWhatIsThere(t *testing.T) {
	source := manyRows(t, 3000)
	b, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(source, int64(pageOf(b, "message 1500 "))); err != nil {
		t.Fatal(err)
	}
	r, output, err := recovery(t, source, true)
	if err != nil || !r.Partial {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := storetest.Query(t, output, "SELECT count(*) FROM messages"); got[0] == "0" || got[0] == "3000" {
		t.Errorf("%s messages are saved, %d lost", got[0], r.Lost())
	}
	storetest.StateAt(t, output, store.Options{})
}

func TestMessagesWithoutTheirSessionGetOne(t *testing.T) {
	source := manyRows(t, 10)
	if _, err := storetest.Exec(source, "DELETE FROM sessions"); err != nil {
		t.Fatal(err)
	}
	r, output, err := recovery(t, source, false)
	if err != nil || r.Placeholders != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := storetest.Query(t, output, "SELECT id, source, message_count FROM sessions"); got[0] != "s|recovered|10" {
		t.Errorf("sessions are %v", got)
	}
	s := storetest.StateAt(t, output, store.Options{}) // looks at the index in the end
	if found, err := s.Search(context.Background(), store.Search{Text: "essag", Substring: true}); err != nil || len(found.Hits) != 10 {
		t.Errorf("%d messages are found by a part of a word, %v", len(found.Hits), err)
	}
}

// A page can be damaged so that its rows are there and their texts are none. They are read, recovered and found all the same.
func TestATextThatIsNoTextIsReadAndRecovered(t *testing.T) {
	source := manyRows(t, 10)
	for _, statement := range []string{
		"UPDATE messages SET content = CAST(x'6120ff66f0bac4fe62' || content AS TEXT), tool_name = CAST(x'e4f0babf' AS TEXT) WHERE id = 5",
		"UPDATE sessions SET title = CAST(x'ff' || title AS TEXT)",
	} {
		if _, err := storetest.Exec(source, statement); err != nil {
			t.Fatal(err)
		}
	}
	check := func(path string) {
		t.Helper()
		s := storetest.StateAt(t, path, store.Options{})
		list, err := s.Conversation(context.Background(), "s")
		if err != nil || len(list) != 10 {
			t.Fatalf("%d messages, %v", len(list), err)
		}
		for _, m := range list {
			if !utf8.ValidString(m.Content) || !utf8.ValidString(m.ToolName) || !strings.Contains(m.Content, "message ") {
				t.Errorf("message is %+v", m)
			}
		}
		if i, err := s.FindSession(context.Background(), "s"); err != nil || i.Title != "\uFFFDthe one" {
			t.Errorf("session is %+v, %v", i, err)
		}
	}
	r, output, err := recovery(t, source, false)
	if err != nil || !r.Complete || len(r.Errors) != 2 || !strings.HasPrefix(r.Errors[0], "1 row of sessions had texts") {
		t.Fatalf("%+v, %v", r, err)
	}
	check(output)
	check(source)
}

func TestAPartialRecoveryIsKeptOnlyIfAskedFor(t *testing.T) {
	source := manyRows(t, 4000)
	b, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[pageOf(b, "message 2000 "):][:4096])
	if err := os.WriteFile(source, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, output, err := recovery(t, source, false)
	if !errors.Is(err, store.ErrPartial) || r.Lost() == 0 || r.Saved() == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(output); err == nil {
		t.Error("a result was written")
	}
}

func TestRecoverRefusesToOverwrite(t *testing.T) {
	source := manyRows(t, 1)
	for _, output := range []string{source, source + "-wal", ""} {
		_, err := store.Recover(context.Background(), store.RecoverOptions{Source: source, Output: output})
		if err == nil {
			t.Errorf("recovered to %q", output)
		}
	}
	if _, err := store.Recover(context.Background(), store.RecoverOptions{Source: source + ".none", InspectOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a source that is not there: %v", err)
	}
}

func TestAnInspectionReadsTheWALToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := storetest.StateAt(t, path, store.Options{})
	for i := range 5 {
		accept(t, s, fmt.Sprint(i))
	}
	r, err := store.Recover(context.Background(), store.RecoverOptions{Source: path, InspectOnly: true})
	if err != nil || !r.Complete || r.Operation != "inspect" || len(r.SourceBundle) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	i := slices.IndexFunc(r.Tables, func(t store.RecoveredTable) bool { return t.Name == "hs_inbox" })
	if i < 0 || r.Tables[i].Rows != 5 {
		t.Errorf("tables are %+v", r.Tables)
	}
}

func TestACopyIsMadeUnderLoad(t *testing.T) {
	dir := t.TempDir()
	s := storetest.StateAt(t, filepath.Join(dir, "state.db"), store.Options{})
	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				ended <- i
				return
			default:
			}
			if _, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: fmt.Sprint(i), Text: strings.Repeat("x", 3000)}); err != nil {
				t.Error(err)
			}
		}
	}()
	eventually(t, "some rows", func() bool { list, err := s.Open(context.Background()); return err == nil && len(list) > 20 })
	for i := range 3 {
		to := filepath.Join(dir, fmt.Sprint("copy", i))
		if err := s.CopyTo(context.Background(), to); err != nil {
			t.Fatal(err)
		}
		storetest.Integrity(t, to)
	}
	close(stop)
	<-ended
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
