package backup

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// Restoring has two steps. First everything is unpacked and checked in a folder that is then renamed to one beginning with
// ready: from there on the restore will happen, if need be at the next start. Then each file takes the place of what is
// there, which moves into a snapshot (swap.go). A restore that is killed in the first step has changed nothing; one that is
// killed in the second goes on with Resume.
const (
	unpacking = ".restore-unpack-"
	ready     = ".restore-ready-"
)

// kept are files that a restore does not touch: they tell of processes that run or ran.
var kept = []string{"gateway_state.json", "gateway.pid", "cron.pid", "gateway.lock", "processes.json", "hermes-supervisor.lock", "supervisor.db"}

// A Restored tells what a restore did.
type Restored struct {
	Source string   `json:"source"`
	Files  []string `json:"files"`
	Links  []Link   `json:"links"`   // links of the home that files of the backup take the place of
	Kept   string   `json:"kept_in"` // id of the snapshot with what was there
}

// Check looks whether a database of a backup, which is unpacked at path, is sound. name is its path in the home.
type Check func(name, path string) error

// Find returns what name stands for: a zip file, or a snapshot of the home by its id or folder.
func Find(home, name string) (string, error) {
	for _, path := range []string{name, filepath.Join(home, snapshots, name), filepath.Join(home, "backups", name)} {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if info.IsDir() && !exists(filepath.Join(path, manifestName)) {
			continue
		}
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("restore %s: %w: it is neither a backup file nor the id of a snapshot", name, fs.ErrNotExist)
}

// Restore puts a backup or snapshot into the home. The caller owns the home, and nobody else has its databases open.
func Restore(home, source string, now time.Time, check Check) (Restored, error) {
	r := Restored{Source: source}
	id := fmt.Sprintf("%s-%d", inOrder(filepath.Join(home, snapshots), now).Format(idFormat), os.Getpid())
	_, _ = Sweep(home) // what a restore left that was killed may be as large
	work, err := scratch.Make(filepath.Join(home, unpacking+id))
	if err != nil {
		return r, fmt.Errorf("restore: %w", err)
	}
	defer func() { _ = work.Remove() }()
	part := work.Path
	names, err := unpackChecked(source, part, check)
	if err == nil {
		r.Links, err = inTheWay(home, names)
	}
	if err == nil {
		err = publish(part, filepath.Join(home, ready+id))
	}
	if err != nil {
		return r, fmt.Errorf("restore %s: nothing was changed: %w", source, err)
	}
	r.Files, r.Kept, err = apply(home, id)
	return r, err
}

// unpackChecked unpacks a backup or snapshot into a folder and has its databases checked.
func unpackChecked(source, to string, check Check) (names []string, err error) {
	unpack := unpackZip
	if info, err := os.Stat(source); err == nil && info.IsDir() {
		unpack = unpackSnapshot
	}
	names, err = unpack(source, to)
	if err == nil && len(names) == 0 {
		err = errors.New("there is nothing in it")
	}
	for _, name := range names {
		if err == nil && !isLink(filepath.Join(to, name)) && isDatabase(filepath.Join(to, name), name) {
			err = check(name, filepath.Join(to, name))
		}
	}
	return names, err
}

// Plan unpacks and checks a backup or snapshot as Restore does, and says what it would do. It needs room as Restore does, in
// the home, or in the folder for temporary files if there is no home yet.
func Plan(home, source string, check Check) (r Restored, err error) {
	work, err := scratch.Temp(home, unpacking+"*")
	if err != nil {
		work, err = scratch.Temp("", unpacking+"*")
	}
	r.Source = source
	if err != nil {
		return r, fmt.Errorf("restore: %w", err)
	}
	defer func() { _ = work.Remove() }()
	if r.Files, err = unpackChecked(source, work.Path, check); err == nil {
		r.Links, err = inTheWay(home, r.Files)
	}
	if err != nil {
		return r, fmt.Errorf("restore %s: %w", source, err)
	}
	return r, nil
}

// Waiting says that Resume has something to do.
func Waiting(home string) bool {
	waiting, _ := filepath.Glob(filepath.Join(scratch.Literal(home), ready+"*"))
	return len(waiting) > 0
}

// leftovers are what a process that was killed can leave in a home, besides a restore that is ready: patterns of folders.
var leftovers = []string{unpacking + "*", snapshots + "/" + half, staging, "hermes-session-recovery-*"}

// Leftovers returns the folders in a home that were left half made by processes that have ended.
func Leftovers(home string) (list []string) {
	for _, pattern := range leftovers {
		list = append(list, scratch.Abandoned(filepath.Join(scratch.Literal(home), pattern))...)
	}
	return list
}

// Sweep removes them.
func Sweep(home string) (removed []string, err error) {
	for _, pattern := range leftovers {
		list, serr := scratch.Sweep(filepath.Join(scratch.Literal(home), pattern))
		removed, err = append(removed, list...), errors.Join(err, serr)
	}
	return removed, err
}

// describe writes the manifest of the snapshot that holds what was replaced.
func describe(dir, id string) error {
	s := newSnapshot(time.Now(), "pre-restore")
	s.ID = id
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() == manifestName {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		s.Files[filepath.ToSlash(name)] = info.Size()
		s.FileCount++
		s.TotalSize += info.Size()
		return err
	})
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, manifestName), append(text, '\n'))
}

func unpackSnapshot(source, to string) (names []string, err error) {
	err = filepath.WalkDir(source, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() && e.Type()&fs.ModeSymlink == 0 {
			return err
		}
		name, err := filepath.Rel(source, path)
		name = filepath.ToSlash(name)
		if err != nil || name == manifestName || slices.Contains(kept, name) {
			return err
		}
		if strings.HasSuffix(name, "-shm") {
			return nil // made again
		}
		if !strings.HasSuffix(name, "-wal") && !strings.HasSuffix(name, "-journal") {
			names = append(names, name)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700); err != nil {
			return err
		}
		if e.Type()&fs.ModeSymlink != 0 { // what an earlier restore has replaced
			return copyLink(path, filepath.Join(to, name))
		}
		return copyFile(path, filepath.Join(to, name))
	})
	return names, err
}

// maxUnpacked bounds what one file of a backup may unpack to: a zip file can claim anything.
const maxUnpacked = 1 << 40

func unpackZip(source, to string) (names []string, err error) {
	z, err := zip.OpenReader(source)
	if err != nil {
		return nil, err
	}
	defer func() { _ = z.Close() }()
	for _, f := range z.File {
		name := strings.TrimSuffix(f.Name, "/")
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("%q leads out of the home", f.Name)
		}
		if !f.Mode().IsRegular() || slices.Contains(kept, name) || skipped(name) || strings.HasPrefix(name, "_external/") {
			continue
		}
		if err := unpackFile(f, filepath.Join(to, filepath.FromSlash(name))); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func unpackFile(f *zip.File, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, maxUnpacked))
	if err == nil && uint64(n) != f.UncompressedSize64 {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, out.Sync(), out.Close())
}
