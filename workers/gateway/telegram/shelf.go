package telegram

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

const (
	// handledKept is how many updates are remembered: a few polls' worth, as only what no later poll has confirmed is
	// handed over again.
	handledKept = 500
	// handledLines is when the file of them is written anew.
	handledLines = 5000
	// shownKept is how long messages are remembered: those of a turn that never had an answer, and files that were sent,
	// as the supervisor may ask again for what it did not hear of.
	shownKept = 48 * time.Hour
)

// A shelf keeps what should survive the death of this process: which messages stand in for an answer that is to come,
// which updates were handled. Losing it costs a stray "…" or a repeated
// help text, never a message: those are the supervisor's. Without a folder it keeps them in memory only.
type shelf struct {
	dir string

	mu      sync.Mutex
	shown   map[string]shown   // by key
	handled map[int64]struct{} //
	order   []int64            // of handled, oldest first
	lines   int                // in the file
	log     *os.File           // of handled updates
}

// shown are the messages that stand in for an answer.
type shown struct {
	Key    string `json:"key"` // of the turn or delivery
	Chat   int64  `json:"chat"`
	Thread int    `json:"thread"`
	IDs    []int  `json:"ids"`
	At     int64  `json:"at"` // when it was noted, in Unix seconds

	inherited bool // from an earlier process
}

func openShelf(dir string) (*shelf, error) {
	s := &shelf{dir: dir, shown: map[string]shown{}, handled: map[int64]struct{}{}}
	if dir == "" {
		return s, nil
	}
	err := os.MkdirAll(filepath.Join(dir, "shown"), 0o700)
	if gateway.TakesNoWrites(err) { // there is nothing to read, and what is noted now is known to this process alone
		s.dir = ""
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("folder of the adapter: %w", err)
	}
	if err := s.readShown(); err != nil {
		return nil, fmt.Errorf("folder of the adapter: %w", err)
	}
	if err := s.openLog(); err != nil {
		return nil, fmt.Errorf("list of handled updates: %w", err)
	}
	return s, nil
}

func (s *shelf) logPath() string { return filepath.Join(s.dir, "handled") }

// openLog reads the newest of the handled updates and goes on behind them.
func (s *shelf) openLog() error {
	f, err := os.OpenFile(s.logPath(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	readOnly := gateway.TakesNoWrites(err)
	if readOnly { // what is handled now is known to this process alone
		if f, err = os.Open(s.logPath()); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		s.lines++
		if id, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil { // the last line may be half
			s.remember(id)
		}
	}
	if err := lines.Err(); err != nil || readOnly {
		_ = f.Close()
		return err
	}
	s.log = f
	return nil
}

func (s *shelf) remember(id int64) {
	if _, known := s.handled[id]; known {
		return
	}
	s.handled[id] = struct{}{}
	if s.order = append(s.order, id); len(s.order) > handledKept {
		delete(s.handled, s.order[0])
		s.order = s.order[1:]
	}
}

// wasHandled reports whether an update was handled, also by an earlier process.
func (s *shelf) wasHandled(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.handled[id]
	return known
}

// setHandled notes updates that were handled. The numbers are not compared by size: after a quiet week Telegram
// begins anew with any number.
func (s *shelf) setHandled(ids ...int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var line []byte
	for _, id := range ids {
		s.remember(id)
		line = append(strconv.AppendInt(line, id, 10), '\n')
	}
	if s.log == nil {
		return nil
	}
	if s.lines += len(ids); s.lines > handledLines {
		return s.compact()
	}
	_, err := s.log.Write(line)
	return err
}

func (s *shelf) compact() error {
	var all []byte
	for _, id := range s.order {
		all = append(strconv.AppendInt(all, id, 10), '\n')
	}
	if err := writeFile(s.logPath(), all); err != nil {
		return err
	}
	_ = s.log.Close()
	f, err := os.OpenFile(s.logPath(), os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.log = nil
		return err
	}
	s.log, s.lines = f, len(s.order)
	return nil
}

// readShown reads what earlier processes noted, and ends what one of them had begun to write: a note under another name
// than its own would be there for ever, and have an answer taken away that was given since.
func (s *shelf) readShown() error {
	dir := filepath.Join(s.dir, "shown")
	entries, err := os.ReadDir(dir) // sorted: what is not named yet comes after what it replaces
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		named, begun := strings.CutSuffix(path, unnamed)
		var v shown
		raw, err := os.ReadFile(path)
		whole := err == nil && json.Unmarshal(raw, &v) == nil && v.Key != ""
		switch {
		case whole && begun:
			err = os.Rename(path, named)
		case begun:
			err = os.Remove(path)
		}
		if begun && err != nil && !gateway.TakesNoWrites(err) {
			return err
		}
		if whole {
			v.inherited = true
			s.shown[v.Key] = v
		}
	}
	return nil
}

// setShown notes the messages that stand in for an answer; none forgets it.
func (s *shelf) setShown(v shown) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(v.IDs) == 0 {
		if _, known := s.shown[v.Key]; !known {
			return nil
		}
		delete(s.shown, v.Key)
	} else {
		v.IDs, v.At, v.inherited = slices.Clone(v.IDs), time.Now().Unix(), s.shown[v.Key].inherited
		s.shown[v.Key] = v
	}
	if s.dir == "" {
		return nil
	}
	path := filepath.Join(s.dir, "shown", fileName(v.Key))
	if len(v.IDs) == 0 {
		return removeFile(path)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFile(path, raw)
}

// shownOf returns the messages that stand in for an answer.
func (s *shelf) shownOf(key string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shown[key].IDs)
}

// inherited says that an earlier process has sent messages that stand in for an answer.
func (s *shelf) inherited(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown[key].inherited
}

// shownIn returns what is shown in a place.
func (s *shelf) shownIn(chat int64, thread int) []shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []shown
	for _, v := range s.shown {
		if v.Chat == chat && v.Thread == thread {
			out = append(out, v)
		}
	}
	return out
}

// conflictKey is where it is noted that the home chat was told of a conflict.
const conflictKey = "conflict"

// conflictTold reports whether the home chat was told of the conflict that lasts.
func (s *shelf) conflictTold() bool { return len(s.shownOf(conflictKey)) > 0 }

// setConflictTold notes it, so that a new process in the same conflict does not tell it again.
func (s *shelf) setConflictTold(told bool) error {
	if told {
		return s.setShown(shown{Key: conflictKey, IDs: []int{1}})
	}
	return s.setShown(shown{Key: conflictKey})
}

// sweep removes what is too old to matter.
func (s *shelf) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, v := range s.shown {
		if now.Sub(time.Unix(v.At, 0)) < shownKept {
			continue
		}
		delete(s.shown, key)
		if s.dir != "" {
			_ = os.Remove(filepath.Join(s.dir, "shown", fileName(key))) // read and tried again by the next process
		}
	}
}

func (s *shelf) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil {
		_ = s.log.Close()
		s.log = nil
	}
}

// removeOld removes the files of a folder that were last written before a time. What cannot be removed stays.
func removeOld(dir string, before time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().Before(before) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// fileName makes a file name of an id.
func fileName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// unnamed ends the name of a file that is being written. A process that is killed leaves it.
const unnamed = ".new"

// writeFile replaces a file as a whole. It is not forced to the disk: what is here may be lost with the power.
func writeFile(path string, raw []byte) error {
	next := path + unnamed
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
