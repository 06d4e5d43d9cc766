package store

import (
	"os"

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
	if err := publish(to, func(part string) error { return copyPagesInto(c, part) }); err != nil {
		return err
	}
	log.Info("kept a copy of the file as it was", "path", to)
	return nil
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
