package store_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// FuzzOpen opens a database in which bytes were overwritten and which was cut. It must end in an error or in a store
// that answers, and leave no descriptor.
func FuzzOpen(f *testing.F) {
	data, err := os.ReadFile("testdata/state-schema-v8.db")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte("not SQLite"), uint32(0))
	f.Add(uint32(16), []byte{0xff, 0xff, 1, 1}, uint32(0))   // page size, format
	f.Add(uint32(18), []byte{9, 9}, uint32(0))               // a later file format
	f.Add(uint32(28), []byte{0, 0, 0, 1}, uint32(0))         // page count
	f.Add(uint32(100), make([]byte, 200), uint32(0))         // the root of the schema
	f.Add(uint32(4096), make([]byte, 4096), uint32(0))       // a page
	f.Add(uint32(3*4096), []byte("garbage here"), uint32(0)) // another one
	f.Add(uint32(0), []byte{}, uint32(1))                    // nothing left
	f.Add(uint32(0), []byte{}, uint32(5000))                 // cut
	f.Fuzz(func(t *testing.T, at uint32, bytes []byte, keep uint32) {
		bad := append([]byte(nil), data...)
		copy(bad[int(at)%len(bad):], bytes)
		if keep > 0 {
			bad = bad[:int(keep-1)%len(bad)]
		}
		before := storetest.Descriptors(t)
		path := filepath.Join(t.TempDir(), "state.db")
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.OpenState(context.Background(), path, store.Options{Readers: 1})
		if err == nil {
			use(t, s)
			_ = s.Close()
		}
		if n := storetest.Descriptors(t); n != before {
			t.Errorf("%d descriptors, %d before", n, before)
		}
	})
}

// use touches what may be damaged; errors are fine, silence is not.
func use(t *testing.T, s *store.State) {
	ctx := context.Background()
	list, _ := s.Sessions(ctx, "", 0)
	for _, x := range list {
		_, _ = s.Conversation(ctx, x.ID)
	}
	a, err := s.Accept(ctx, store.Inbound{Platform: "test", ChatID: "1", MessageID: "1", Text: "hello"})
	if err != nil {
		return
	}
	if u, err := s.Turn(ctx, a.TurnID); err == nil && u.SessionID != a.SessionID {
		t.Errorf("turn %+v of %+v", u, a)
	}
	if _, err = s.Lease(ctx, a.TurnID, "agent-1"); err != nil {
		return
	}
	_, _ = s.Conversation(ctx, a.SessionID)
}
