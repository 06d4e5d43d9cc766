package tools

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
)

//go:embed write_file.md
var writeFileText string

type writeFileArgs struct {
	Path    string `json:"path" jsonschema:"file to write"`
	Content string `json:"content" jsonschema:"all of the new content"`
}

func (a writeFileArgs) Validate() error { return validPath(a.Path) }

type writeFileResult struct {
	Path    string `json:"path"`
	Bytes   int    `json:"bytes_written"`
	Created bool   `json:"created"`
}

// writeFile writes text files.
type writeFile struct {
	places
}

func (t *writeFile) tool() plugins.Tool {
	return plugins.Func("write_file", writeFileText, t.run, plugins.Timeout(10*time.Second, time.Minute), plugins.Check(t.check))
}

func (t *writeFile) check(_ context.Context, a writeFileArgs) plugins.Verdict {
	name := t.path(a.Path)
	return verdict(t.files.Writing(name), fmt.Sprintf("write %s (%d bytes)", name, len(a.Content)))
}

func (t *writeFile) run(_ context.Context, _ *plugins.Call, a writeFileArgs) (writeFileResult, error) {
	name := t.path(a.Path)
	// A link may have changed since the check. What a person allowed then is not looked at again.
	if r := t.files.Writing(name); r.Verdict == guard.Refuse {
		return writeFileResult{}, errors.New(r.Explain(name))
	}
	target := guard.Resolve(name) // a link stays a link to the new content
	if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
		return writeFileResult{}, plain(err)
	}
	created, err := replace(target, []byte(a.Content))
	if err != nil {
		return writeFileResult{}, fmt.Errorf("%s is as it was: %w", name, plain(err))
	}
	return writeFileResult{Path: name, Bytes: len(a.Content), Created: created}, nil
}

// replace puts content in the place of a file, or of nothing, in one step: whoever reads it sees the old or the new
// whole, also after a power cut. Rights and owner of the old file are kept.
func replace(name string, content []byte) (created bool, err error) {
	mode := fs.FileMode(0o666)
	old, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		created = true
	case err != nil:
		return false, err
	default:
		if err := regular(name, old); err != nil {
			return false, err
		}
		mode = old.Mode().Perm()
	}
	dir := filepath.Dir(name)
	f, temporary, err := createBeside(name, mode)
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(temporary)
		}
	}()
	if !created {
		if err := keepOwner(f, old, mode); err != nil {
			return false, err
		}
	}
	if _, err = f.Write(content); err != nil {
		return false, err
	}
	if err = f.Sync(); err != nil {
		return false, err
	}
	if err = f.Close(); err != nil {
		return false, err
	}
	if err = os.Rename(temporary, name); err != nil {
		return false, err
	}
	return created, syncDir(dir)
}

// createBeside creates a file next to name under a name of its own.
func createBeside(name string, mode fs.FileMode) (*os.File, string, error) {
	for n := 0; ; n++ {
		temporary := filepath.Join(filepath.Dir(name), fmt.Sprintf(".hermes-%d-%d.tmp", os.Getpid(), time.Now().UnixNano()+int64(n)))
		f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, mode)
		if !errors.Is(err, fs.ErrExist) || n == 100 {
			return f, temporary, err
		}
	}
}

// keepOwner gives the new file what the old one had. That it cannot (a file of somebody else) is no failure, as
// the content is what was asked for.
func keepOwner(f *os.File, old fs.FileInfo, mode fs.FileMode) error {
	if st, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
	return f.Chmod(mode)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot sync a directory; the file itself has been.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
