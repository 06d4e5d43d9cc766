// Package pairing lets in people whom no list names: whoever writes to a bot gets a code, and the operator approves it.
//
// Rules: the files are Hermes' own, in the same folder and form, so that whom one of the two programs approved the other
// knows. Codes are kept as salted hashes and told once. A file that cannot be read is never overwritten, and lets nobody
// in. One Store is the only writer of a home: the supervisor, or a command under the home's lock.
package pairing

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"
)

// The limits are Hermes'.
const (
	alphabet      = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789" // without what is easily mistaken
	codeLength    = 8
	CodeTTL       = time.Hour
	requestPause  = 10 * time.Minute // between two codes of one person
	maxPending    = 3                // of one platform
	maxFailures   = 5                // wrong codes in a row
	lockout       = time.Hour
	requestIDSize = 8 // bytes
)

var (
	ErrNoCode = errors.New("no such request") // wrong, used or expired
	ErrLocked = errors.New("too many wrong codes")
	ErrName   = errors.New("not the name of a platform")
)

// A Person was approved.
type Person struct {
	Platform, UserID, UserName string
	ApprovedAt                 time.Time
}

// A Request waits for the operator.
type Request struct {
	Platform, ID, UserID, UserName string
	AskedAt                        time.Time
}

// An Outcome says what became of a wish for a code.
type Outcome int

const (
	Code    Outcome = iota + 1 // Answer.Code holds
	Allowed                    // approved before
	Wait                       // got one a moment ago
	Full                       // the platform has as many open requests as it may
	Locked                     // too many wrong codes were tried
)

// An Answer to a wish for a code.
type Answer struct {
	Outcome Outcome
	Code    string
	Expires time.Time
	Retry   time.Duration // of Wait and Locked
}

// A Store keeps requests and approvals of one home. It is safe for concurrent use.
type Store struct {
	home string
	now  func() time.Time
	mu   sync.Mutex
}

// New returns the store of a home. Nothing is read or written before it is used.
func New(home string, now func() time.Time) *Store { return &Store{home: home, now: now} }

// pendingEntry and approvedEntry are Hermes' records; times are Unix seconds.
type pendingEntry struct {
	Hash      string  `json:"hash"`
	Salt      string  `json:"salt"`
	UserID    string  `json:"user_id"`
	UserName  string  `json:"user_name"`
	CreatedAt float64 `json:"created_at"`
}

type approvedEntry struct {
	UserName   string  `json:"user_name"`
	ApprovedAt float64 `json:"approved_at"`
}

// Check says whether a person was approved.
func (s *Store) Check(platform, userID string) (Person, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.check(platform, userID)
}

func (s *Store) check(platform, userID string) (Person, bool, error) {
	if err := checkName(platform); err != nil || userID == "" {
		return Person{}, false, err
	}
	known, err := s.approved(platform)
	if err != nil {
		return Person{}, false, err
	}
	e, ok := known[userID]
	return Person{platform, userID, e.UserName, at(e.ApprovedAt)}, ok, nil
}

// Request makes a code for a person, if the limits allow one.
func (s *Store) Request(platform, userID, userName string) (Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkName(platform); err != nil {
		return Answer{}, err
	}
	if userID == "" {
		return Answer{}, errors.New("a person without an id cannot be paired")
	}
	if _, known, err := s.check(platform, userID); err != nil || known {
		return Answer{Outcome: Allowed}, err
	}
	limits, err := s.limits()
	if err != nil {
		return Answer{}, err
	}
	now := s.now()
	if left := s.lockedFor(limits, platform); left > 0 {
		return Answer{Outcome: Locked, Retry: left}, nil
	}
	if left := requestPause - now.Sub(at(limits[platform+":"+userID])); left > 0 && left <= requestPause {
		return Answer{Outcome: Wait, Retry: left}, nil
	}
	pending, err := s.pending(platform)
	if err != nil {
		return Answer{}, err
	}
	if len(pending) >= maxPending {
		return Answer{Outcome: Full}, nil
	}
	code, salt := newCode(), randomBytes(16)
	pending[hex.EncodeToString(randomBytes(requestIDSize))] = pendingEntry{
		Hash: hashOf(code, salt), Salt: hex.EncodeToString(salt), UserID: userID, UserName: userName, CreatedAt: unix(now),
	}
	// The limit first: a code that was counted and not stored costs ten minutes, one that was not counted has no limit.
	limits[platform+":"+userID] = unix(now)
	if err := s.save(limitsFile, prune(limits, now)); err != nil {
		return Answer{}, err
	}
	if err := s.save(pendingFile(platform), pending); err != nil {
		return Answer{}, err
	}
	return Answer{Outcome: Code, Code: code, Expires: now.Add(CodeTTL)}, nil
}

// Approve lets in the person of a code, or of a request's id as List shows it. A wrong code is ErrNoCode and counts: after
// five in a row nothing is approved by code for an hour (ErrLocked).
func (s *Store) Approve(platform, code string) (Person, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkName(platform); err != nil {
		return Person{}, err
	}
	pending, err := s.pending(platform)
	if err != nil {
		return Person{}, err
	}
	limits, err := s.limits()
	if err != nil {
		return Person{}, err
	}
	code = strings.TrimSpace(code)
	if e, ok := pending[strings.ToLower(code)]; ok {
		return s.approve(platform, strings.ToLower(code), e, pending, limits)
	}
	if left := s.lockedFor(limits, platform); left > 0 {
		return Person{}, fmt.Errorf("pairing of %s: %w: locked for %v more; approve by the id that `pairing list` shows", platform, ErrLocked, left.Round(time.Second))
	}
	for _, id := range slices.Sorted(maps.Keys(pending)) {
		e := pending[id]
		salt, err := hex.DecodeString(e.Salt)
		if err == nil && subtle.ConstantTimeCompare([]byte(hashOf(strings.ToUpper(code), salt)), []byte(e.Hash)) == 1 {
			return s.approve(platform, id, e, pending, limits)
		}
	}
	failures := "_failures:" + platform
	if limits[failures]++; limits[failures] >= maxFailures {
		limits[failures], limits["_lockout:"+platform] = 0, unix(s.now().Add(lockout))
	}
	if err := s.save(limitsFile, limits); err != nil {
		return Person{}, err
	}
	return Person{}, fmt.Errorf("code of %s: %w: it is wrong, used or older than an hour; see `hermes-supervisor pairing list`", platform, ErrNoCode)
}

func (s *Store) approve(platform, id string, e pendingEntry, pending map[string]pendingEntry, limits map[string]float64) (Person, error) {
	now := s.now()
	if err := s.change(approvedFile(platform), func(known map[string]json.RawMessage) error {
		b, err := json.Marshal(approvedEntry{e.UserName, unix(now)})
		known[e.UserID] = b
		return err
	}); err != nil {
		return Person{}, err
	}
	delete(pending, id)
	if err := s.save(pendingFile(platform), pending); err != nil {
		return Person{}, err
	}
	if limits["_failures:"+platform] > 0 {
		delete(limits, "_failures:"+platform)
		if err := s.save(limitsFile, limits); err != nil {
			return Person{}, err
		}
	}
	return Person{platform, e.UserID, e.UserName, now}, nil
}

// Revoke takes an approval back. It returns false if there was none.
func (s *Store) Revoke(platform, userID string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known, err := s.check(platform, userID)
	if err != nil || !known {
		return false, err
	}
	return true, s.everywhere(approvedFile(platform), func(known map[string]json.RawMessage) { delete(known, userID) })
}

// List returns what waits and who was approved, of one platform or, if that is empty, of all.
func (s *Store) List(platform string) ([]Request, []Person, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	platforms, err := s.platforms(platform)
	if err != nil {
		return nil, nil, err
	}
	var waiting []Request
	var people []Person
	for _, p := range platforms {
		pending, err := s.pending(p)
		if err != nil {
			return nil, nil, err
		}
		for id, e := range pending {
			waiting = append(waiting, Request{p, id, e.UserID, e.UserName, at(e.CreatedAt)})
		}
		approved, err := s.approved(p)
		if err != nil {
			return nil, nil, err
		}
		for id, e := range approved {
			people = append(people, Person{p, id, e.UserName, at(e.ApprovedAt)})
		}
	}
	slices.SortFunc(waiting, func(a, b Request) int {
		return cmpStrings(a.Platform, b.Platform, a.AskedAt.Format(time.RFC3339Nano), b.AskedAt.Format(time.RFC3339Nano), a.ID, b.ID)
	})
	slices.SortFunc(people, func(a, b Person) int { return cmpStrings(a.Platform, b.Platform, a.UserID, b.UserID) })
	return waiting, people, nil
}

// ClearPending forgets the open requests of a platform, or of all, and returns how many there were.
func (s *Store) ClearPending(platform string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	platforms, err := s.platforms(platform)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range platforms {
		pending, err := s.pending(p)
		if err != nil {
			return n, err
		}
		if len(pending) == 0 {
			continue
		}
		if err := s.save(pendingFile(p), map[string]pendingEntry{}); err != nil {
			return n, err
		}
		n += len(pending)
	}
	return n, nil
}

// lockedFor is how long no code is taken, or made, for a platform.
func (s *Store) lockedFor(limits map[string]float64, platform string) time.Duration {
	return max(at(limits["_lockout:"+platform]).Sub(s.now()), 0)
}

// prune forgets limits that have run out, so that the file does not grow with every stranger.
func prune(limits map[string]float64, now time.Time) map[string]float64 {
	maps.DeleteFunc(limits, func(key string, v float64) bool {
		return !strings.HasPrefix(key, "_") && now.Sub(at(v)) > requestPause
	})
	return limits
}

func hashOf(code string, salt []byte) string {
	sum := sha256.Sum256(append(slices.Clone(salt), code...))
	return hex.EncodeToString(sum[:])
}

func newCode() string {
	b := make([]byte, codeLength)
	for i := range b {
		n, _ := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet)))) // never fails
		b[i] = alphabet[n.Int64()]
	}
	return string(b)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func at(seconds float64) time.Time {
	if seconds <= 0 || seconds > 1e11 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// cmpStrings compares pairs until one differs.
func cmpStrings(pairs ...string) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		if c := strings.Compare(pairs[i], pairs[i+1]); c != 0 {
			return c
		}
	}
	return 0
}
