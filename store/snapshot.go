package store

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
)

// snapshotSuffix names the copy of a file as another program left it.
const snapshotSuffix = ".before-hermes-supervisor"

// snapshotForeign copies a file that has tables of another program's making to path+snapshotSuffix, once. An existing
// copy is older and therefore the one to keep.
func snapshotForeign(c *conn, path string, log hclog.Logger) error {
	var tables int
	if err := (&tx{conn: c, ctx: background}).get("SELECT count(*) FROM sqlite_schema", nil, &tables); err != nil {
		return err
	}
	to := path + snapshotSuffix
	if tables == 0 || exists(to) {
		return nil
	}
	if err := backup(c, to); err != nil {
		return err
	}
	log.Info("kept a copy of the file as it was", "path", to)
	return nil
}

// backup copies the database to a new file by SQLite's backup, under a temporary name until it is complete and on disk.
func backup(from *conn, to string) error {
	part := to + ".part"
	if err := os.Remove(part); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := copyPages(from, part); err != nil {
		_ = os.Remove(part)
		return err
	}
	if err := syncFile(part); err != nil {
		return err
	}
	if err := os.Rename(part, to); err != nil {
		return err
	}
	return syncFile(filepath.Dir(to))
}

func copyPages(from *conn, to string) error {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	dest, err := dial(to, "", "journal_mode=OFF", "synchronous=OFF")
	if err != nil {
		return err
	}
	defer dest.close()
	b, err := dest.raw.Backup("main", from.raw, "main")
	if err != nil {
		return err
	}
	done, err := b.Step(-1)
	if ferr := b.Finish(); err == nil {
		err = ferr
	}
	if err == nil && !done {
		err = fmt.Errorf("backup to %s is not complete", to)
	}
	return err
}

// syncFile makes a file or directory durable. The file is one that SQLite has closed.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
