package backup

import (
	"archive/zip"
	"context"
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
		".backup.lock", "gateway.pid", "cron.pid", "hermes-supervisor.lock"}
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

// Zip writes a whole backup of a home to a new file and returns the number of files in it and their size. Databases are
// copied to a folder beside the output first.
func Zip(ctx context.Context, home, output string, copyDB Copier) (files int, size int64, err error) {
	if exists(output) {
		return 0, 0, fmt.Errorf("backup to %s: %w", output, fs.ErrExist)
	}
	work, err := scratch.Temp(filepath.Dir(output), staging)
	if err != nil {
		return 0, 0, fmt.Errorf("backup: %w", err)
	}
	defer func() { _ = work.Remove() }()
	part := filepath.Join(work.Path, "backup.zip")
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, 0, fmt.Errorf("backup: %w", err)
	}
	z := &zipper{ctx: ctx, home: home, staging: work.Path, copyDB: copyDB, zip: zip.NewWriter(out)}
	err = errors.Join(walk(ctx, home, z.file), z.zip.Close(), out.Sync(), out.Close())
	if err == nil {
		err = place(part, output)
	}
	if err == nil {
		err = syncDir(filepath.Dir(output))
	}
	if err != nil {
		return z.files, z.size, fmt.Errorf("backup of %s: %w", home, err)
	}
	return z.files, z.size, nil
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
	files         int
	size          int64
}

// walk calls f with every file that belongs into a backup.
func walk(ctx context.Context, home string, f func(path, name string) error) error {
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
		if err != nil || !isFile(path, e) {
			return err
		}
		return f(path, name)
	})
}

// isFile says that a name stands for a file, itself or as a link. Links to folders are not followed: they can lead anywhere.
func isFile(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.Type().IsRegular()
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// isDatabase says that a file is to be copied and checked as a database: a store, or another one that is what its name says.
func isDatabase(path, name string) bool {
	if !strings.HasSuffix(name, ".db") {
		return false
	}
	if slices.Contains(quick, name) || strings.HasPrefix(name, "kanban/") {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	const magic = "SQLite format 3\x00"
	b := make([]byte, len(magic))
	_, err = io.ReadFull(f, b)
	return err == nil && string(b) == magic
}

func (z *zipper) file(path, name string) error {
	if isDatabase(path, name) {
		copied := filepath.Join(z.staging, "copy.db")
		if err := z.copyDB(z.ctx, name, copied); err != nil {
			return err
		}
		defer func() { _ = os.Remove(copied) }()
		path = copied
	}
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
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
	z.files++
	z.size += n
	return err
}
