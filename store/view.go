package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// viewLimit is the size up to which a file that has to be completed before it can be read is copied for that.
const viewLimit = 128 << 20

// view gives the readers what can be read of a file that is not opened for writing: the file itself, or where that is not
// possible (there is none, it was never opened by this version, its WAL needs an index that cannot be made) a copy among the
// temporary files. Else reads end with the reason.
func (d *database) view(ctx context.Context) {
	d.endView()
	if d.health.holds(CondWALRetired) {
		d.readers.refuse(d.refusal()) // a look would make a second WAL
		return
	}
	err := d.viewFile()
	if err != nil && (errors.Is(err, errOldFile) || !d.health.holds(CondDamage)) {
		err = d.viewCopy(ctx)
	}
	if err != nil {
		d.log.Error("nothing can be read", "path", d.path, "error", err)
		d.readers.refuse(fmt.Errorf("%w; nothing can be read: %w", d.refusal(), explain(err)))
	}
}

// openReading opens a file for those who only read it, and says whether that is possible.
func (d *database) openReading(k kind, readers int) bool {
	d.kind, d.count, d.reading = k, readers, true
	d.readers = newReaders(d.path, readers, d.log)
	if exists(d.path) && wrongKind(d.path) == "" && d.viewFile() == nil {
		d.run(nil, k, look(d.path))
		return true
	}
	d.readers, d.reading = nil, false
	return false
}

// errOldFile says that a file lacks what this version reads.
var errOldFile = errors.New("the file was not opened by this version yet")

// viewFile reads the file where it is.
func (d *database) viewFile() error {
	steps, err := migrationsOf(d.kind.migrations)
	if err != nil {
		return err
	}
	mode := "mode=ro"
	if sizeOf(d.path+"-wal") == 0 && !writable(filepath.Dir(d.path)) {
		mode += "&immutable=1" // SQLite would make a WAL and an index to read a file in WAL mode
	}
	if err := d.readers.use(d.path, mode, d.count); err != nil {
		return err
	}
	c := <-d.readers.free
	number, err := migrationNumber(c)
	d.readers.free <- c
	if err == nil && number != len(steps) {
		err = errOldFile
	}
	if err != nil {
		d.readers.empty(err)
	}
	return err
}

// viewCopy reads a copy, to which what this version needs is added. It holds what the file held when it was made. Where
// temporary files cannot be written either it is in /dev/shm, which is memory.
func (d *database) viewCopy(ctx context.Context) (err error) {
	if size := sizeOf(d.path) + sizeOf(d.path+"-wal"); size > viewLimit {
		return fmt.Errorf("%w, and %d MiB are too much to be copied and completed", errOldFile, size>>20)
	}
	for _, dir := range []string{"", "/dev/shm"} {
		work, werr := scratch.Temp(dir, "hermes-view-*")
		if werr == nil {
			path := filepath.Join(work.Path, filepath.Base(d.path))
			if werr = d.complete(ctx, path); werr == nil {
				werr = d.readers.use(path, "mode=ro", d.count)
			}
			if werr == nil {
				d.viewed = work
				return nil
			}
			_ = work.Remove()
		}
		err = errors.Join(err, werr)
	}
	return err
}

// complete copies the file with its WAL, if there is one, to a path and adds what this version needs. SQLite makes the index
// of a WAL beside it, which it could not where the file is. Closing a file that was read drops this process's locks on it:
// here it has none, because readers and writer are closed, and nothing of ours waits in the WAL to be kept from a foreign
// process.
func (d *database) complete(ctx context.Context, path string) error {
	for _, suffix := range []string{"", "-wal"} {
		if err := copyPlain(d.path+suffix, path+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	c, err := dial(path, "_foreign_keys=1", "journal_mode=DELETE", "synchronous=OFF")
	if err != nil {
		return err
	}
	defer c.close()
	if d.kind.indexed {
		if err := errors.Join(checkSchema(c), checkIndex(ctx, c, d.log)); err != nil {
			return err
		}
	}
	return migrate(ctx, c, d.path, d.kind.migrations, d.log)
}

// endView removes the copy that was read, when nobody reads it any more.
func (d *database) endView() {
	if d.viewed == nil {
		return
	}
	if err := d.viewed.Remove(); err != nil {
		d.log.Warn("a copy could not be removed; the next start does it", "path", d.viewed.Path, "error", err)
	}
	d.viewed = nil
}
