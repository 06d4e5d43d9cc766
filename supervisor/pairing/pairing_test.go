package pairing

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A clock that a test moves.
type clock struct{ time.Time }

func (c *clock) now() time.Time       { return c.Time }
func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }
func newStore(t *testing.T) (*Store, *clock) {
	c := &clock{time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)}
	return New(t.TempDir(), c.now), c
}

func request(t *testing.T, s *Store, user string) Answer {
	t.Helper()
	a, err := s.Request("telegram", user, "Name of "+user)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAPersonIsLetInByTheCodeThatOnlyTheyGot(t *testing.T) {
	s, _ := newStore(t)
	if _, ok, err := s.Check("telegram", "7"); ok || err != nil {
		t.Fatalf("before: %v, %v", ok, err)
	}
	a := request(t, s, "7")
	if a.Outcome != Code || len(a.Code) != 8 || strings.Trim(a.Code, alphabet) != "" {
		t.Fatalf("%+v", a)
	}
	files, err := filepath.Glob(filepath.Join(s.home, "platforms", "pairing", "*.json"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		b, _ := os.ReadFile(f)
		info, err := os.Stat(f)
		if err != nil || info.Mode().Perm() != 0o600 || strings.Contains(string(b), a.Code) {
			t.Errorf("%s: %v, %v, the code is in it: %v", f, info.Mode(), err, strings.Contains(string(b), a.Code))
		}
	}
	again := New(s.home, s.now) // the supervisor was restarted
	p, err := again.Approve("telegram", " "+strings.ToLower(a.Code)+"\n")
	if err != nil || p.UserID != "7" || p.UserName != "Name of 7" {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, ok, err := s.Check("telegram", "7"); !ok || err != nil {
		t.Errorf("after: %v, %v", ok, err)
	}
	if _, ok, _ := s.Check("discord", "7"); ok {
		t.Error("approved on another platform too")
	}
	if _, err := s.Approve("telegram", a.Code); !errors.Is(err, ErrNoCode) {
		t.Errorf("used twice: %v", err)
	}
	if a := request(t, s, "7"); a.Outcome != Allowed {
		t.Errorf("%+v", a)
	}
	if was, err := s.Revoke("telegram", "7"); !was || err != nil {
		t.Errorf("revoke: %v, %v", was, err)
	}
	if was, err := s.Revoke("telegram", "7"); was || err != nil {
		t.Errorf("revoke again: %v, %v", was, err)
	}
	if _, ok, _ := s.Check("telegram", "7"); ok {
		t.Error("still approved")
	}
}

func TestCodesAreLimitedAndExpire(t *testing.T) {
	s, c := newStore(t)
	first := request(t, s, "1")
	if a := request(t, s, "1"); a.Outcome != Wait || a.Retry != 10*time.Minute {
		t.Errorf("%+v", a)
	}
	request(t, s, "2")
	request(t, s, "3")
	if a := request(t, s, "4"); a.Outcome != Full || a.Code != "" {
		t.Errorf("%+v", a)
	}
	c.pass(CodeTTL + time.Second)
	if _, err := s.Approve("telegram", first.Code); !errors.Is(err, ErrNoCode) {
		t.Errorf("an expired code: %v", err)
	}
	if waiting, _, err := s.List(""); err != nil || len(waiting) != 0 {
		t.Errorf("%v, %v", waiting, err)
	}
	if a := request(t, s, "4"); a.Outcome != Code {
		t.Errorf("%+v", a)
	}
	if n, err := s.ClearPending(""); n != 1 || err != nil {
		t.Errorf("cleared %d, %v", n, err)
	}
}

func TestWrongCodesLockThePlatformAndNotTheOperatorWhoReadsTheList(t *testing.T) {
	s, c := newStore(t)
	a := request(t, s, "1")
	for range maxFailures {
		if _, err := s.Approve("telegram", "WRONGCOD"); !errors.Is(err, ErrNoCode) {
			t.Fatal(err)
		}
	}
	if _, err := s.Approve("telegram", a.Code); !errors.Is(err, ErrLocked) {
		t.Errorf("the right code while locked: %v", err)
	}
	if a := request(t, s, "2"); a.Outcome != Locked || a.Retry != lockout {
		t.Errorf("%+v", a)
	}
	waiting, _, err := s.List("telegram")
	if err != nil || len(waiting) != 1 {
		t.Fatalf("%v, %v", waiting, err)
	}
	if p, err := s.Approve("telegram", waiting[0].ID); err != nil || p.UserID != "1" {
		t.Errorf("%+v, %v", p, err)
	}
	c.pass(lockout)
	if a := request(t, s, "2"); a.Outcome != Code {
		t.Errorf("%+v", a)
	}
}

func TestWhomHermesApprovedIsKnownAndItsRecordsStay(t *testing.T) {
	for _, folder := range []string{"pairing", filepath.Join("platforms", "pairing")} {
		s, _ := newStore(t)
		dir := filepath.Join(s.home, folder)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "telegram-approved.json")
		if err := os.WriteFile(path, []byte(`{"7": {"user_name": "Ada", "approved_at": 1780000000.5, "note": "kept"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, ok, err := s.Check("telegram", "7"); !ok || err != nil || p.UserName != "Ada" {
			t.Errorf("%s: %+v %v, %v", folder, p, ok, err)
		}
		if _, err := s.Approve("telegram", request(t, s, "8").Code); err != nil {
			t.Fatal(err)
		}
		var got map[string]map[string]any
		b, _ := os.ReadFile(path)
		if err := json.Unmarshal(b, &got); err != nil || got["7"]["note"] != "kept" || got["8"] == nil {
			t.Errorf("%s: %s, %v", folder, b, err)
		}
	}
}

func TestAFileThatCannotBeReadLetsNobodyInAndIsNotOverwritten(t *testing.T) {
	s, _ := newStore(t)
	dir := filepath.Join(s.home, "platforms", "pairing")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "telegram-approved.json")
	if err := os.WriteFile(path, []byte(`{"7": `), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Check("telegram", "7"); ok || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, %v", ok, err)
	}
	if _, err := s.Request("telegram", "8", ""); err == nil {
		t.Error("a code that could not be approved")
	}
	if b, _ := os.ReadFile(path); string(b) != `{"7": ` {
		t.Errorf("the file became %q", b)
	}
	if _, _, err := s.Check("../telegram", "7"); err == nil {
		t.Error("a name that leads out of the folder")
	}
}

func FuzzPairingFiles(f *testing.F) {
	f.Add([]byte(`{"a": {"hash": "x", "salt": "zz", "user_id": 1, "created_at": 1e300}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _ := newStore(t)
		dir := filepath.Join(s.home, "platforms", "pairing")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"telegram-pending.json", limitsFile} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = s.Request("telegram", "1", "")
		if _, err := s.Approve("telegram", "ABCDEFGH"); err == nil {
			t.Error("approved by a code that nobody made")
		}
	})
}
