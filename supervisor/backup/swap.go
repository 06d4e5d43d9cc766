package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// A swap is the second step of a restore. No link of the home is followed in it: one that is where a file of the backup, or a
// folder for it, belongs is moved into the snapshot like a file, and what it leads to is not touched. Restoring the snapshot
// brings it back. Nor does anything take the place of what is kept already: where a restore was killed and another program
// wrote meanwhile, what that wrote goes into a further snapshot.
type swap struct {
	home, from, id string
	files          []string
}

// A Link is a symbolic link of the home.
type Link struct {
	Name   string `json:"name"`
	Target string `json:"target"`
}

// apply moves the files of a restore that is ready into place, and what is there into a snapshot. It may be repeated.
func apply(home, id string) (files []string, kept string, err error) {
	s := &swap{home: home, from: filepath.Join(home, ready+id), id: id}
	kept = filepath.Base(s.snapshot(1))
	if err := os.MkdirAll(s.snapshot(1), 0o700); err != nil {
		return nil, "", fmt.Errorf("restore: %w", err)
	}
	err = filepath.WalkDir(s.from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(s.from, path)
		if err != nil {
			return err
		}
		if !isBeside(name) {
			s.files = append(s.files, filepath.ToSlash(name))
		}
		return s.put(name)
	})
	for n := 1; err == nil && exists(s.snapshot(n)); n++ {
		err = describe(s.snapshot(n), filepath.Base(s.snapshot(n)))
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(s.from), syncDir(home))
	}
	if err != nil {
		return s.files, kept, fmt.Errorf("restore is not finished, the next start goes on with it: %w", err)
	}
	return s.files, kept, nil
}

// snapshot is where things are kept; 1 is the usual one.
func (s *swap) snapshot(n int) string {
	id := s.id + "-pre-restore"
	if n > 1 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return filepath.Join(s.home, snapshots, id)
}

// put gives a file its place in the home.
func (s *swap) put(name string) error {
	for _, folder := range parents(name) {
		path := filepath.Join(s.home, folder)
		if isFolder(path) {
			continue
		}
		if err := s.keep(folder); err != nil {
			return err
		}
		if err := errors.Join(os.Mkdir(path, 0o700), syncDir(filepath.Dir(path))); err != nil {
			return err
		}
	}
	place := filepath.Join(s.home, name)
	if err := s.keep(name); err != nil {
		return err
	}
	if err := move(filepath.Join(s.from, name), place); err != nil {
		return err
	}
	return syncDir(filepath.Dir(place))
}

// keep moves what is in the home under a name into the first snapshot that has room for it, with what belongs to a database.
func (s *swap) keep(name string) error {
	place := filepath.Join(s.home, name)
	suffixes := []string{""}
	if strings.HasSuffix(name, ".db") { // a WAL must never meet another file than its own
		suffixes = append(slices.Clone(beside), "")
	}
	var there []string
	for _, suffix := range suffixes {
		if exists(place + suffix) {
			there = append(there, suffix)
		}
	}
	if len(there) == 0 {
		return nil
	}
	if name == manifestName { // a snapshot has one of its own
		name += ".kept"
	}
	n := 1
	for !free(s.snapshot(n), name, there) {
		n++
	}
	old := filepath.Join(s.snapshot(n), name)
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		return err
	}
	for _, suffix := range there {
		if err := move(place+suffix, old+suffix); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(old))
}

// free says that a snapshot has nothing under a name yet, and no link or file where its folders belong.
func free(dir, name string, suffixes []string) bool {
	for _, folder := range parents(name) {
		if path := filepath.Join(dir, folder); exists(path) && !isFolder(path) {
			return false
		}
	}
	for _, suffix := range suffixes {
		if exists(filepath.Join(dir, name) + suffix) {
			return false
		}
	}
	return true
}

// parents are the folders of the home that a file is in, the outermost first.
func parents(name string) (list []string) {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		list = append([]string{dir}, list...)
	}
	return list
}

// inTheWay finds the links that files take the place of, and refuses what no file can take the place of.
func inTheWay(home string, names []string) (links []Link, err error) {
	seen := map[string]bool{}
	for _, name := range names {
		for _, part := range append(parents(name), name) {
			path := filepath.Join(home, part)
			if seen[part] && isLink(path) {
				break // and what is below it is elsewhere
			}
			if seen[part] {
				continue
			}
			seen[part] = true
			if target, err := os.Readlink(path); err == nil {
				links = append(links, Link{filepath.ToSlash(part), target})
				break
			}
			if mountedOn(path) && (part == name || !isFolder(path)) {
				return nil, fmt.Errorf("something is mounted on %s, so that it cannot be replaced: unmount it first", path)
			}
		}
	}
	return links, nil
}

// mountedOn says that a path is the root of a file system, as a file is that a container gets from outside.
func mountedOn(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// Resume finishes a restore that was killed after its first step, and returns the files that were put in place. The caller
// owns the home and has opened none of its stores.
func Resume(home string) (files []string, err error) {
	waiting, _ := filepath.Glob(filepath.Join(scratch.Literal(home), ready+"*"))
	for _, dir := range waiting {
		done, _, aerr := apply(home, strings.TrimPrefix(filepath.Base(dir), ready))
		files, err = append(files, done...), errors.Join(err, aerr)
	}
	return files, err
}
