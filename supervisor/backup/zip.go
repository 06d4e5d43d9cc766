package backup

import (
	"archive/zip"
	"bytes"
	"context"
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

// skippedFolders are left out wherever they are, skippedAtTop in the home itself: they can be made again, or are backups.
var (
	skippedFolders = []string{"node_modules", ".git", "__pycache__", "backups", snapshots, "checkpoints", "browser-profiles", "browser-profile", "venvs", "caches"}
	skippedAtTop   = []string{"hermes-agent", "models", "runtimes", "node", "installs", "tools", "build-tools", "cache", "supervisor.db",
		".backup.lock", leftOutName, "gateway.pid", "cron.pid", "hermes-supervisor.lock"}
	skippedPrefixes = []string{"state.db.pre-update-emergency-", "state.db.retired-wal-", ".restore-", "hermes-session-recovery-", ".write-check-"}
	skippedSuffixes = []string{"-wal", "-shm", "-journal", ".part", ".partial"}
)

// skipped says whether a path in the home is left out of a backup.
func skipped(name string) bool {
	parts := strings.Split(name, "/")
	base := parts[len(parts)-1]
	return slices.Contains(skippedAtTop, parts[0]) ||
		slices.ContainsFunc(parts, func(p string) bool { return slices.Contains(skippedFolders, p) }) ||
		slices.ContainsFunc(skippedPrefixes, func(p string) bool { return strings.HasPrefix(base, p) }) ||
		slices.ContainsFunc(skippedSuffixes, func(p string) bool { return strings.HasSuffix(base, p) && !strings.HasSuffix(base, ".md") })
}

// Name is the usual name of a whole backup.
func Name(now time.Time) string { return "hermes-backup-" + now.Format(zipStamp) + ".zip" }

const zipStamp = "2006-01-02-150405"

// staging is the folder beside a backup in which it is made.
const staging = ".hermes-backup-*.partial"

// A LeftOut is what a backup should hold and does not, because it cannot be read.
type LeftOut struct {
	Name   string `json:"name"` // in the home; a folder ends with a slash
	Reason string `json:"reason"`
}

// A Zipped tells what a whole backup holds.
type Zipped struct {
	Path    string
	Files   int
	Size    int64
	LeftOut []LeftOut
	Links   []string // links to folders, which are not followed: they can lead anywhere
}

// leftOutName is the file of a backup that names what it misses; one that misses nothing has none. No file of the home.
const leftOutName = ".hermes-backup-left-out.json"

// leftOutList is what is in it.
type leftOutList struct {
	LeftOut []LeftOut `json:"left_out"`
}

// Zip writes a whole backup of a home to a new file, output. Databases are copied to a folder beside the output first, and one that
// cannot be copied is an error. Another file that cannot be read does not cost the rest: it is named in the result and in the
// backup.
func Zip(ctx context.Context, home, output string, copyDB Copier) (Zipped, error) {
	if exists(output) {
		return Zipped{}, fmt.Errorf("backup to %s: %w", output, fs.ErrExist)
	}
	return zipTo(ctx, home, filepath.Dir(output), copyDB, func(part string) (string, error) { return output, place(part, output) })
}

// ZipInto writes a whole backup into a folder, under its usual name. Where another one was made within the same second, of
// another home even, it is that of the next second that no backup has.
func ZipInto(ctx context.Context, home, dir string, now time.Time, copyDB Copier) (Zipped, error) {
	return zipTo(ctx, home, dir, copyDB, func(part string) (string, error) {
		for at := now; ; at = at.Add(time.Second) {
			output := filepath.Join(dir, Name(at))
			if exists(output) {
				continue
			}
			if err := place(part, output); !errors.Is(err, fs.ErrExist) {
				return output, err
			}
		}
	})
}

// zipTo makes a backup in a folder; named gives it its name.
func zipTo(ctx context.Context, home, dir string, copyDB Copier, named func(part string) (string, error)) (Zipped, error) {
	work, err := scratch.Temp(dir, staging)
	if err != nil {
		return Zipped{}, fmt.Errorf("backup: %w", err)
	}
	defer func() { _ = work.Remove() }()
	part := filepath.Join(work.Path, "backup.zip")
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Zipped{}, fmt.Errorf("backup: %w", err)
	}
	z := &zipper{ctx: ctx, home: home, staging: work.Path, copyDB: copyDB, zip: zip.NewWriter(out)}
	err = walk(ctx, home, visitor{file: z.file, leftOut: z.leftOut, link: func(name string) { z.made.Links = append(z.made.Links, name) }})
	if err == nil {
		err = z.nameLeftOut()
	}
	if err == nil { // else the writer would fail once more, for the same reason
		err = errors.Join(z.zip.Close(), out.Sync())
	}
	err = errors.Join(err, out.Close())
	if err == nil {
		z.made.Path, err = named(part)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return z.made, fmt.Errorf("backup of %s: %w", home, err)
	}
	return z.made, nil
}

// place gives a backup its name without replacing another one.
func place(part, output string) error {
	err := os.Link(part, output)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(part, output) // a file system without links, as on a memory stick
}

type zipper struct {
	ctx           context.Context
	home, staging string
	copyDB        Copier
	zip           *zip.Writer
	made          Zipped
}

// A visitor is told of what belongs into a backup.
type visitor struct {
	file    func(path, name string) error
	leftOut func(name string, err error)
	link    func(name string) // one to a folder
}

// walk goes through a home. A folder in it that cannot be read is left out, as far as it cannot.
func walk(ctx context.Context, home string, v visitor) error {
	home, err := filepath.EvalSymlinks(home) // a walk begins in no link
	if err != nil {
		return err
	}
	return filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		if path == home {
			return err
		}
		name, relErr := filepath.Rel(home, path)
		if relErr != nil {
			return relErr
		}
		name = filepath.ToSlash(name)
		if skipped(name) {
			if e != nil && e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) { // gone since the folder was read
			return nil
		}
		if err != nil {
			v.leftOut(name+"/", err)
			return nil
		}
		return v.visit(path, name, e)
	})
}

func (v visitor) visit(path, name string, e fs.DirEntry) error {
	if e.Type()&fs.ModeSymlink == 0 {
		if e.Type().IsRegular() {
			return v.file(path, name)
		}
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		v.leftOut(name, err)
	case info.IsDir():
		v.link(name)
	case info.Mode().IsRegular():
		return v.file(path, name)
	}
	return nil
}

// isDatabase says that a file is to be copied and checked as a database: a store, or another one that is what its name says.
func isDatabase(path, name string) bool {
	if !strings.HasSuffix(name, ".db") {
		return false
	}
	if slices.Contains(quick, name) || strings.HasPrefix(name, "kanban/") {
		return true
	}
	f, _, err := open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	const magic = "SQLite format 3\x00"
	b := make([]byte, len(magic))
	_, err = io.ReadFull(f, b)
	return err == nil && string(b) == magic
}

func (z *zipper) leftOut(name string, err error) {
	z.made.LeftOut = append(z.made.LeftOut, LeftOut{name, reason(err)})
}

// reason is an error without the path, which is said beside it.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

func (z *zipper) file(path, name string) error {
	if !isDatabase(path, name) {
		return z.plain(path, name)
	}
	copied := filepath.Join(z.staging, "copy.db")
	if err := z.copyDB(z.ctx, name, copied); vanished(err, path, name) {
		return nil
	} else if err != nil {
		return err
	}
	defer func() { _ = os.Remove(copied) }()
	in, err := os.Open(copied)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	return z.add(info, name, in)
}

// plain adds a file that is no database, after it has been read to its end: what has begun to be in a zip file cannot be taken
// back, and half a file must not be restored as a whole one.
func (z *zipper) plain(path, name string) error {
	in, info, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		z.leftOut(name, err)
		return nil
	}
	defer func() { _ = in.Close() }()
	text, err := io.ReadAll(io.LimitReader(in, inMemory))
	if err != nil {
		z.leftOut(name, err)
		return nil
	}
	if len(text) < inMemory {
		return z.add(info, name, bytes.NewReader(text))
	}
	return z.large(info, name, io.MultiReader(bytes.NewReader(text), in))
}

// inMemory is the size from which a file is held on disk while it is read; nearly all files of a home are smaller.
const inMemory = 1 << 20

// large adds a file by way of one beside the backup.
func (z *zipper) large(info fs.FileInfo, name string, in io.Reader) error {
	held, err := os.CreateTemp(z.staging, "held-")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(held.Close(), os.Remove(held.Name())) }()
	from := &source{in: in}
	if _, err = io.Copy(held, from); from.err != nil {
		z.leftOut(name, from.err)
		return nil
	}
	if err == nil {
		_, err = held.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return z.add(info, name, held)
}

func (z *zipper) add(info fs.FileInfo, name string, in io.Reader) error {
	h, err := zip.FileInfoHeader(info)
	if err != nil {
		return err
	}
	h.Name, h.Method = name, zip.Deflate
	w, err := z.zip.CreateHeader(h)
	if err != nil {
		return err
	}
	n, err := io.Copy(w, in)
	z.made.Files++
	z.made.Size += n
	return err
}

// nameLeftOut writes into the backup what it misses.
func (z *zipper) nameLeftOut() error {
	if len(z.made.LeftOut) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(leftOutList{z.made.LeftOut}, "", "  ")
	if err != nil {
		return err
	}
	w, err := z.zip.Create(leftOutName)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
