// Package backup copies a home and puts a copy back: quick snapshots inside the home, in the folders and with the
// manifests of Hermes Agent, and whole backups as zip files.
//
// Rules: a database is never copied as a file but through SQLite (Copier), so that a copy is sound whatever writes
// meanwhile. Everything is made under a temporary name, made durable and then renamed, so a command that is killed leaves
// either nothing or something whole. Restoring replaces nothing that is not kept: what was there becomes a snapshot.
package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// A Copier copies a database of the home, named by its path in it, to a new file.
type Copier func(ctx context.Context, name, to string) error

const (
	snapshots    = "state-snapshots"
	manifestName = "manifest.json"
	idFormat     = "20060102-150405"
	half         = ".*.partial" // a snapshot that is being made
	// KeepSnapshots is how many quick snapshots stay, as in Hermes.
	KeepSnapshots = 20
)

// quick are the files of a snapshot besides the boards. What is not there is passed over.
var quick = []string{
	"state.db", "kanban.db", "config.yaml", ".env", "auth.json", "cron/jobs.json", "cron/executions.db", "gateway_state.json",
	"channel_directory.json", "channel_aliases.json", "processes.json", "gateway/discord_message_recovery.db", "projects.db",
	"response_store.db", "memory_store.db", "verification_evidence.db", "feishu_comment_pairing.json",
}

// A Snapshot is one folder of quick snapshots, as its manifest says it.
type Snapshot struct {
	ID        string           `json:"id"`
	Timestamp string           `json:"timestamp"`
	Label     string           `json:"label"`
	FileCount int              `json:"file_count"`
	TotalSize int64            `json:"total_size"`
	Files     map[string]int64 `json:"files"`
	FailedDBs []string         `json:"failed_dbs"`
	Oversized []string         `json:"oversized_skipped"`
	LeftOut   []LeftOut        `json:"left_out"` // Hermes knows of none, and makes no snapshot then
}

func newSnapshot(now time.Time, label string) Snapshot {
	return Snapshot{Timestamp: now.UTC().Format(time.RFC3339), Label: label, Files: map[string]int64{}, FailedDBs: []string{}, Oversized: []string{}, LeftOut: []LeftOut{}}
}

// Missing names what should be in a snapshot and is not.
func (s Snapshot) Missing() []string {
	names := slices.Clone(s.FailedDBs)
	for _, l := range s.LeftOut {
		names = append(names, l.Name)
	}
	return names
}

// ErrWithoutStore says that a snapshot was made in which a database is missing.
var ErrWithoutStore = errors.New("made without")

// Quick makes a snapshot. A file that cannot be read does not cost the rest: it is named in the result. Nor does a database
// that cannot be copied, which is also an error, ErrWithoutStore.
func Quick(ctx context.Context, home, label string, now time.Time, copyDB Copier) (Snapshot, error) {
	s := newSnapshot(now, label)
	dir := filepath.Join(home, snapshots)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, fmt.Errorf("snapshot: %w", err)
	}
	_, _ = scratch.Sweep(filepath.Join(dir, half)) // what cannot be removed now is left to the next
	s.ID = freeID(dir, now, label)
	work, err := scratch.Make(filepath.Join(dir, fmt.Sprintf(".%s.%d.partial", s.ID, os.Getpid())))
	if err != nil {
		return s, fmt.Errorf("snapshot: %w", err)
	}
	defer func() { _ = work.Remove() }()
	part := work.Path
	failed, err := s.fill(ctx, home, part, copyDB)
	if err == nil {
		err = s.finish(part, filepath.Join(dir, s.ID))
	}
	if err != nil {
		return s, fmt.Errorf("snapshot: %w", err)
	}
	if failed != nil {
		return s, fmt.Errorf("snapshot %s is %w %s: %w", s.ID, ErrWithoutStore, strings.Join(s.FailedDBs, ", "), failed)
	}
	return s, nil
}

// fill copies what there is into a snapshot that is being made. failed is why a database is missing.
func (s *Snapshot) fill(ctx context.Context, home, part string, copyDB Copier) (failed, err error) {
	names, left := quickNames(home)
	s.LeftOut = append(s.LeftOut, left...)
	for _, name := range names {
		err := s.add(ctx, home, part, name, copyDB)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch bad := (*unreadable)(nil); {
		case err == nil:
		case strings.HasSuffix(name, ".db"):
			s.FailedDBs = append(s.FailedDBs, name)
			failed = errors.Join(failed, err)
		case errors.As(err, &bad):
			s.LeftOut = append(s.LeftOut, LeftOut{name, reason(err)})
		default:
			return nil, err
		}
	}
	return failed, nil
}

// add copies one file into a snapshot that is being made.
func (s *Snapshot) add(ctx context.Context, home, part, name string, copyDB Copier) error {
	from, to := filepath.Join(home, name), filepath.Join(part, name)
	info, err := os.Stat(from)
	switch {
	case gone(err):
		return nil
	case err != nil:
		return &unreadable{err}
	case !info.Mode().IsRegular():
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if strings.HasSuffix(name, ".db") {
		err = copyDB(ctx, name, to)
	} else {
		err = copyFile(from, to)
	}
	if vanished(err, from, name) {
		return nil
	}
	if err != nil {
		return err
	}
	if info, err = os.Stat(to); err != nil {
		return err
	}
	s.Files[name] = info.Size()
	s.FileCount++
	s.TotalSize += info.Size()
	return nil
}

func (s *Snapshot) finish(part, dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(part, manifestName), append(text, '\n')); err != nil {
		return err
	}
	return publish(part, dir)
}

// quickNames are the files of a snapshot, if they are there, and the folder of boards if it cannot be read.
func quickNames(home string) (names []string, left []LeftOut) {
	const boards = "kanban/boards"
	list, err := os.ReadDir(filepath.Join(home, boards))
	if err != nil && !gone(err) {
		left = append(left, LeftOut{boards + "/", reason(err)})
	}
	names = slices.Clone(quick)
	for _, e := range list {
		names = append(names, boards+"/"+e.Name()+"/kanban.db")
	}
	return names, left
}

// inOrder is now, or where the clock was set back a second after the newest snapshot in a folder: names are what snapshots
// are put in order and removed by, here and by Hermes.
func inOrder(dir string, now time.Time) time.Time {
	now = now.UTC().Truncate(time.Second)
	for _, at := range stamps(dir) {
		if now.Before(at) {
			now = at.Add(time.Second)
		}
	}
	return now
}

func freeID(dir string, now time.Time, label string) string {
	stamp := inOrder(dir, now)
	base := stamp.Format(idFormat)
	if label != "" {
		base += "-" + clean(label)
	}
	id := base
	for n := 1; exists(filepath.Join(dir, id)); n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	return id
}

// stamps are the times in the names of the snapshots in a folder, the oldest first.
func stamps(dir string) (list []time.Time) {
	entries, _ := os.ReadDir(dir) // in order of their names
	for _, e := range entries {
		if len(e.Name()) < len(idFormat) {
			continue
		}
		if at, err := time.Parse(idFormat, e.Name()[:len(idFormat)]); err == nil {
			list = append(list, at)
		}
	}
	return list
}

// clean makes a label part of a file name.
func clean(label string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, label)
}

// List returns the snapshots of a home, the newest first.
func List(home string) ([]Snapshot, error) {
	dir := filepath.Join(home, snapshots)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var list []Snapshot
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		s := Snapshot{}
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), manifestName))
		if err != nil || json.Unmarshal(text, &s) != nil {
			continue // not one of ours
		}
		s.ID = e.Name()
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Snapshot) int { return strings.Compare(b.ID, a.ID) })
	return list, nil
}

// Excess returns those of a list, the newest first, that go when only so many are to stay. One that misses something does not
// push out a whole one; but where each does, for a damaged file say, they must not fill the disk either.
func Excess(list []Snapshot, keep int) (old []Snapshot) {
	return excess(list, keep, func(s Snapshot) bool { return len(s.Missing()) == 0 })
}

func excess[T any](list []T, keep int, isWhole func(T) bool) (old []T) {
	whole, partial := 0, 0
	for _, x := range list {
		tooMany := false
		if isWhole(x) {
			whole++
			tooMany = whole > keep
		} else {
			partial++
			tooMany = partial > keep || whole >= keep // nobody goes back to it past so many whole ones
		}
		if tooMany {
			old = append(old, x)
		}
	}
	return old
}

// Prunable lists the snapshots that Prune would remove.
func Prunable(home string, keep int) ([]Snapshot, error) {
	list, err := List(home)
	return Excess(list, keep), err
}

// Prune removes all but the newest snapshots and returns what it removed.
func Prune(home string, keep int) (removed []Snapshot, err error) {
	old, err := Prunable(home, keep)
	if err != nil {
		return nil, err
	}
	for _, s := range old {
		if err := Remove(home, s.ID); err != nil {
			return removed, err
		}
		removed = append(removed, s)
	}
	return removed, nil
}

// Remove removes one snapshot.
func Remove(home, id string) error {
	if err := os.RemoveAll(filepath.Join(home, snapshots, filepath.Base(id))); err != nil {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	return nil
}
