package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// lineages is a home with a conversation that was compressed twice, with a branch and a delegated session.
func lineages(t *testing.T) (*store.State, string) {
	t.Helper()
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	for i, values := range []string{
		"'first', NULL, 'compression', NULL", "'second', 'first', 'compression', NULL", "'third', 'second', NULL, NULL",
		`'branch', 'first', NULL, '{"_branched_from": "first"}'`, `'helper', 'third', NULL, '{"_delegate_from": "third"}'`, "'other', NULL, NULL, NULL",
	} {
		if _, err := storetest.Exec(path, fmt.Sprintf(`INSERT INTO sessions(id, parent_session_id, end_reason, model_config, source, started_at, ended_at)
			SELECT *, 'cli', %d, 99 FROM (SELECT %s)`, i, values)); err != nil {
			t.Fatal(err)
		}
	}
	return s, path
}

func TestAChainIsOneConversationWithoutItsBranches(t *testing.T) {
	s, _ := lineages(t)
	for from, want := range map[string]string{
		"first": "[first second third]", "third": "[first second third]", "branch": "[branch]", "helper": "[helper]", "other": "[other]",
	} {
		list, err := s.Chain(context.Background(), from)
		var ids []string
		for _, i := range list {
			ids = append(ids, i.ID)
		}
		if err != nil || fmt.Sprint(ids) != want {
			t.Errorf("chain of %s is %v, want %s: %v", from, ids, want, err)
		}
	}
	if _, err := s.Chain(context.Background(), "none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("chain of no session: %v", err)
	}
}

// A session goes only while its copy is what it is.
func TestASessionIsDeletedOnlyAsItWasCopied(t *testing.T) {
	ctx := context.Background()
	s, path := lineages(t)
	digest := func(id string) string {
		var b bytes.Buffer
		if err := s.Export(ctx, id, &b); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b.Bytes())
		return hex.EncodeToString(sum[:])
	}
	for i := range 1200 { // more than one piece of an export
		if i > 0 && i%300 != 0 {
			continue
		}
		if _, err := storetest.Exec(path, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
			INSERT INTO messages(session_id, role, content, timestamp) SELECT 'other', 'user', 'text ' || i, %d FROM n`, i)); err != nil {
			t.Fatal(err)
		}
	}
	copied := digest("other")
	if _, err := storetest.Exec(path, "UPDATE messages SET content = 'edited' WHERE id = (SELECT max(id) FROM messages)"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteUnchanged(ctx, "other", copied); !errors.Is(err, store.ErrChanged) {
		t.Errorf("a changed session: %v", err)
	}
	if _, err := s.DeleteUnchanged(ctx, "third", digest("third")); !errors.Is(err, store.ErrInUse) {
		t.Errorf("a session that others go with: %v", err)
	}
	gone, err := s.DeleteUnchanged(ctx, "other", digest("other"))
	if err != nil || len(gone) != 1 {
		t.Fatalf("%v, %v", gone, err)
	}
	if got := storetest.Query(t, path, "SELECT count(*) FROM messages"); got[0] != "0" {
		t.Errorf("%s messages are left", got[0])
	}
}
