package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
)

const (
	// copyPages is one step of a live copy: with 4 KiB pages about a millisecond, so that a request waits for no more.
	copyPages = 256
	// copyTries bounds a copy that foreign writers make begin again and again.
	copyTries = 8
)

// jobs are pieces of work that run on the writer's connection between two groups, outside a transaction.
type job struct {
	run  func(c *conn) error
	done chan error
}

// between runs fn in the loop between two groups. fn must be short.
func (w *writer) between(ctx context.Context, fn func(c *conn) error) error {
	if err := w.health.failure(); err != nil {
		return err
	}
	if w.readOnly.Load() {
		return w.refusal()
	}
	j := job{fn, make(chan error, 1)}
	select {
	case w.jobs <- j:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ended:
		return ErrClosed
	}
	return <-j.done // the loop has taken it and answers
}

// perform runs a job, unless the file was given up since it was asked for.
func (w *writer) perform(j job) error {
	if w.readOnly.Load() {
		return w.refusal()
	}
	return j.run(w.conn)
}

// CopyTo copies the database to a new file while it is written to. It holds everything up to its end. Requests go on:
// the copy advances by small steps between groups, and a file that is complete, checked and on disk appears at the path at
// once.
func (d *database) CopyTo(ctx context.Context, to string) error {
	if d.w.readOnly.Load() {
		return CopyFile(ctx, d.path, to)
	}
	err := publish(to, func(part string) error {
		dest, err := newCopy(part)
		if err != nil {
			return err
		}
		err = d.copySteps(ctx, dest)
		if dest.close(); err != nil {
			return err
		}
		return checkCopy(part)
	})
	if err != nil {
		return fmt.Errorf("copy %s: %w", d.path, explain(err))
	}
	return nil
}

func (d *database) copySteps(ctx context.Context, dest *conn) error {
	var b *sqlite3.SQLiteBackup
	step := func(fn func() error) error {
		return d.w.between(ctx, func(*conn) error { return fn() })
	}
	err := d.w.between(ctx, func(c *conn) (err error) {
		b, err = dest.raw.Backup("main", c.raw, "main")
		return err
	})
	if err != nil {
		return err
	}
	for done, left, restarts := false, -1, 0; !done && err == nil; {
		if err = step(func() (err error) { done, err = b.Step(copyPages); return err }); isBusy(err) {
			err = nil // a foreign writer; the next step tries again
			time.Sleep(10 * time.Millisecond)
		}
		if now := b.Remaining(); left >= 0 && now > left+copyPages {
			if restarts++; restarts > copyTries {
				err = fmt.Errorf("%w: it changes the file faster than it can be copied", ErrBusy)
			}
		}
		left = b.Remaining()
	}
	finish := func() error { return b.Finish() }
	if ferr := step(finish); ferr != nil && err == nil {
		err = errors.Join(ferr, finish()) // the loop has ended, so nobody else uses the connections
	}
	return err
}

// CopyFile copies a database that this process has not open to a new file. Other processes may have it open.
func CopyFile(ctx context.Context, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	from = resolve(from)
	mode := "mode=ro&_busy_timeout=5000"
	if p, err := placeOf(filepath.Dir(from)); err == nil && p.readOnly && sizeOf(from+"-wal") == 0 {
		mode += "&immutable=1"
	}
	err := publish(to, func(part string) error {
		source, err := dial(from, mode, "mmap_size=0")
		if err != nil {
			return err
		}
		defer source.close()
		if err := copyPagesInto(source, part); err != nil {
			return err
		}
		return checkCopy(part)
	})
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, explain(err))
	}
	return nil
}

// publish has fill make a file under a temporary name, makes it durable and gives it its name.
func publish(to string, fill func(part string) error) (err error) {
	part := to + ".part"
	if err := os.Remove(part); err != nil && !os.IsNotExist(err) {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part)
		}
	}()
	if err := fill(part); err != nil {
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

// newCopy makes an empty file for a copy and opens it.
func newCopy(path string) (*conn, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return dial(path, "", "journal_mode=OFF", "synchronous=OFF")
}

func copyPagesInto(from *conn, to string) error {
	dest, err := newCopy(to)
	if err != nil {
		return err
	}
	defer dest.close()
	if err := copyAll(from, dest); err != nil {
		return fmt.Errorf("copy to %s: %w", to, err)
	}
	return nil
}

// copyAll copies all pages of a database into another one.
func copyAll(from, to *conn) error {
	b, err := to.raw.Backup("main", from.raw, "main")
	if err != nil {
		return err
	}
	done, err := b.Step(-1)
	if ferr := b.Finish(); err == nil {
		err = ferr
	}
	if err == nil && !done {
		err = errors.New("the copy is not complete")
	}
	return err
}

// checkCopy looks for damage in a file that nobody else knows of. A damaged full-text index does not count: it is made
// again from the messages.
func checkCopy(path string) error {
	c, err := dial(path, "mode=ro&immutable=1", "cell_size_check=ON", "mmap_size=0")
	if err != nil {
		return err
	}
	defer c.close()
	_, err = quickCheck(c)
	return err
}
