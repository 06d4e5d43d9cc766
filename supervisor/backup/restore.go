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
	Source string `json:"source"`
	Contents
	Links []Link `json:"links"`   // links of the home that files of the backup take the place of
	Kept  string `json:"kept_in"` // id of the snapshot with what was there
}

// Contents are what a backup or a snapshot holds. What belongs to a database, its WAL say, is not counted apart.
type Contents struct {
	Files   []string  `json:"files"`        // what is restored
	Skipped []string  `json:"not_restored"` // what tells of processes or can be made again, and is in it nevertheless
	LeftOut []LeftOut `json:"left_out"`     // what it misses, because it could not be read when it was made
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
	if r.Contents, err = unpackChecked(source, part, check); err == nil {
		r.Links, err = inTheWay(home, r.Files)
	}
	if err == nil {
		err = publish(part, filepath.Join(home, ready+id))
	}
	if err != nil {
		return r, fmt.Errorf("restore %s: nothing was changed: %w", source, err)
	}
	_, r.Kept, err = apply(home, id)
	return r, err
}

// unpackChecked unpacks a backup or snapshot into a folder and has its databases checked.
func unpackChecked(source, to string, check Check) (c Contents, err error) {
	unpack := unpackZip
	if info, err := os.Stat(source); err == nil && info.IsDir() {
		unpack = unpackSnapshot
	}
	c, err = unpack(source, to)
	if err == nil && len(c.Files) == 0 {
		err = errors.New("there is nothing in it")
	}
	for _, name := range c.Files {
		if err == nil && !isLink(filepath.Join(to, name)) && isDatabase(filepath.Join(to, name), name) {
			err = checkAlone(name, filepath.Join(to, name), check)
		}
	}
	return c, err
}

// beside are the ends of names of files that belong to a database.
var beside = []string{"-wal", "-shm", "-journal"}

func isBeside(name string) bool {
	return slices.ContainsFunc(beside, func(end string) bool { return strings.HasSuffix(name, ".db"+end) })
}

// checkAlone has a database checked, and removes what reading it has left beside it: that is not in the backup.
func checkAlone(name, path string, check Check) error {
	ends := slices.DeleteFunc(slices.Clone(beside), func(end string) bool { return exists(path + end) })
	err := check(name, path)
	for _, end := range ends {
		if rerr := os.Remove(path + end); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
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
	if r.Contents, err = unpackChecked(source, work.Path, check); err == nil {
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
		if !isBeside(name) { // which is a part of its database, in what a backup counts too
			s.FileCount++
		}
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

func unpackSnapshot(source, to string) (c Contents, err error) {
	s := Snapshot{}
	text, err := os.ReadFile(filepath.Join(source, manifestName))
	if err = errors.Join(err, json.Unmarshal(text, &s)); err != nil {
		s.LeftOut = []LeftOut{unknown(manifestName, err)}
	}
	for _, name := range s.FailedDBs {
		c.LeftOut = append(c.LeftOut, LeftOut{name, "it could not be copied"})
	}
	c.LeftOut = append(c.LeftOut, s.LeftOut...)
	err = filepath.WalkDir(source, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() && e.Type()&fs.ModeSymlink == 0 {
			return err
		}
		name, err := filepath.Rel(source, path)
		name = filepath.ToSlash(name)
		if err != nil || name == manifestName || strings.HasSuffix(name, ".db-shm") { // which is made again
			return err
		}
		if slices.Contains(kept, name) {
			c.Skipped = append(c.Skipped, name)
			return nil
		}
		if !isBeside(name) {
			c.Files = append(c.Files, name)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700); err != nil {
			return err
		}
		if e.Type()&fs.ModeSymlink != 0 { // what an earlier restore has replaced
			return copyLink(path, filepath.Join(to, name))
		}
		return copyFile(path, filepath.Join(to, name))
	})
	return c, err
}

// maxUnpacked bounds what one file of a backup may unpack to: a zip file can claim anything.
const maxUnpacked = 1 << 40

func unpackZip(source, to string) (c Contents, err error) {
	z, err := zip.OpenReader(source)
	if err != nil {
		return c, err
	}
	defer func() { _ = z.Close() }()
	for _, f := range z.File {
		name := strings.TrimSuffix(f.Name, "/")
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return c, fmt.Errorf("%q leads out of the home", f.Name)
		}
		switch {
		case name == leftOutName:
			c.LeftOut = append(c.LeftOut, readLeftOut(f)...)
		case !f.Mode().IsRegular():
		case slices.Contains(kept, name) || skipped(name) || strings.HasPrefix(name, "_external/"):
			c.Skipped = append(c.Skipped, name)
		default:
			err = unpackFile(f, filepath.Join(to, filepath.FromSlash(name)))
			c.Files = append(c.Files, name)
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

// mostLeftOut bounds the list of what a backup misses: a zip file can hold anything.
const mostLeftOut = 64 << 20

func readLeftOut(f *zip.File) []LeftOut {
	in, err := f.Open()
	if err != nil {
		return []LeftOut{unknown(f.Name, err)}
	}
	defer func() { _ = in.Close() }()
	var list leftOutList
	if err := json.NewDecoder(io.LimitReader(in, mostLeftOut)).Decode(&list); err != nil {
		return append(list.LeftOut, unknown(f.Name, err))
	}
	return list.LeftOut
}

// unknown stands for what cannot be told: what is there can be restored all the same.
func unknown(name string, err error) LeftOut {
	return LeftOut{name, "what is missing is not known: " + reason(err)}
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
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownerOnly(f.Mode()))
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, maxUnpacked))
	if err == nil && uint64(n) != f.UncompressedSize64 {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, out.Sync(), out.Close())
}
