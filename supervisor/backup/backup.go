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
}

// Quick makes a snapshot. A database that cannot be copied is named in the result and in the error; the rest is kept.
func Quick(ctx context.Context, home, label string, now time.Time, copyDB Copier) (Snapshot, error) {
	s := Snapshot{Timestamp: now.UTC().Format(time.RFC3339), Label: label, Files: map[string]int64{}, FailedDBs: []string{}, Oversized: []string{}}
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
	var failed error
	for _, name := range append(slices.Clone(quick), boards(home)...) {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		err := s.add(ctx, home, part, name, copyDB)
		if err != nil && strings.HasSuffix(name, ".db") {
			s.FailedDBs = append(s.FailedDBs, name)
			failed = errors.Join(failed, err)
		} else if err != nil {
			return s, fmt.Errorf("snapshot: %w", err)
		}
	}
	if err := s.finish(part, filepath.Join(dir, s.ID)); err != nil {
		return s, fmt.Errorf("snapshot: %w", err)
	}
	return s, failed
}

// add copies one file into a snapshot that is being made.
func (s *Snapshot) add(ctx context.Context, home, part, name string, copyDB Copier) error {
	from, to := filepath.Join(home, name), filepath.Join(part, name)
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
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

// boards names the files of boards other than the default one.
func boards(home string) (names []string) {
	found, _ := filepath.Glob(filepath.Join(scratch.Literal(home), "kanban", "boards", "*", "kanban.db"))
	for _, path := range found {
		if name, err := filepath.Rel(home, path); err == nil {
			names = append(names, filepath.ToSlash(name))
		}
	}
	return names
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

// Excess returns those of a list, the newest first, that go when only so many are to stay. One that misses a database does not
// push out a whole one; but where each misses one, a damaged file say, they must not fill the disk either.
func Excess(list []Snapshot, keep int) (old []Snapshot) {
	whole, partial := 0, 0
	for _, s := range list {
		n := &whole
		if len(s.FailedDBs) > 0 {
			n = &partial
		}
		*n++
		if *n > keep || whole > keep {
			old = append(old, s)
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
