// Package catalogue keeps the tool plugins of a home: a copy of each program, pinned by its checksum, and the lock file
// that says what it is, what it asks for and what it was granted.
//
// Rules: nothing that is not in the lock file is ever executed, and nothing whose bytes differ from it. A program is
// hashed and executed through one open descriptor, so that what comes to its path in between has no effect. Files and
// folders that others can write to are refused. Whoever owns the home (its lock) is the one who changes the catalogue;
// anybody may read it. It knows nothing of processes.
package catalogue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// Folder in the home. Not "plugins": that one is Hermes Agent's, for its own kind.
	Folder = "tool-plugins"
	// LockFile in the folder.
	LockFile = "plugins.lock"
	// programs and data are folders in it: the copies, named by their checksums, and what plugins write, by plugin.
	programs = "bin"
	data     = "data"
)

// States of a plugin.
const (
	Enabled     = "enabled"
	Disabled    = "disabled"    // a person keeps it down
	Quarantined = "quarantined" // it died too often, or cannot start; a person has to look at it
)

var (
	ErrNotThere = errors.New("there is no such plugin")
	ErrChanged  = errors.New("the program was changed")
	ErrUnsafe   = errors.New("others can change it")
	ErrLockFile = errors.New("lock file cannot be used")
)

// A Catalogue is that of one home. It is safe for concurrent use.
type Catalogue struct {
	dir string
	now func() time.Time

	mu      sync.Mutex
	entries map[string]Entry
}

// Open reads the catalogue of a home. One that has none yet is empty; nothing is made before the first plugin is added.
func Open(home string, now func() time.Time) (*Catalogue, error) {
	c := &Catalogue{dir: filepath.Join(home, Folder), now: now, entries: map[string]Entry{}}
	err := safeFolder(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("catalogue: %w", err)
	}
	text, err := readSafe(c.lockPath())
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("catalogue: %w", err)
	}
	list, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.lockPath(), err)
	}
	for _, e := range list {
		c.entries[e.Name] = e
	}
	return c, nil
}

func (c *Catalogue) lockPath() string { return filepath.Join(c.dir, LockFile) }

// Dir is the folder that holds everything of the catalogue.
func (c *Catalogue) Dir() string { return c.dir }

// DataDir is where a plugin may write.
func (c *Catalogue) DataDir(name string) string { return filepath.Join(c.dir, data, name) }

// List returns all plugins by name.
func (c *Catalogue) List() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Entry, 0, len(c.entries))
	for _, e := range c.entries {
		list = append(list, e.clone())
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Get returns a plugin; ErrNotThere says which there are.
func (c *Catalogue) Get(name string) (Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[name]; ok {
		return e.clone(), nil
	}
	var names []string
	for n := range c.entries {
		names = append(names, n)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return Entry{}, fmt.Errorf("plugin %q: %w; there are none", name, ErrNotThere)
	}
	return Entry{}, fmt.Errorf("plugin %q: %w; there are %s", name, ErrNotThere, strings.Join(names, ", "))
}

// Owner returns the plugin, other than except, that has a tool of this name.
func (c *Catalogue) Owner(tool, except string) (plugin string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, e := range c.entries {
		if name != except && slices.ContainsFunc(e.Tools, func(t Tool) bool { return t.Name == tool }) {
			return name, true
		}
	}
	return "", false
}

// A ClashError says that a tool of plugin Other has the name of one that Owner (a plugin or BuiltIn) has.
type ClashError struct{ Tool, Owner, Other string }

func (e *ClashError) Error() string {
	return fmt.Sprintf("tool %s of %s is there already: %s has it; a model could not tell them apart", e.Tool, e.Other, e.Owner)
}

// Put adds a plugin, or replaces the one of its name. Its program must be in the catalogue (Stage) and be what the
// entry says. A tool that another plugin or the system has is a *ClashError.
func (c *Catalogue) Put(e Entry) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := c.Clash(e); err != nil {
		return err
	}
	f, err := c.Program(e)
	if err != nil {
		return err
	}
	_ = f.Close()
	return c.change(func(entries map[string]Entry) error {
		entries[e.Name] = e.clone()
		return nil
	})
}

// Remove takes a plugin out, with its program; its data is removed if asked for.
func (c *Catalogue) Remove(name string, withData bool) error {
	if _, err := c.Get(name); err != nil {
		return err
	}
	if withData {
		// First, as the lock file takes room: a plugin that has filled the disk must not keep itself there.
		if err := os.RemoveAll(c.DataDir(name)); err != nil {
			return fmt.Errorf("remove the data of %s: %w", name, err)
		}
	}
	return c.change(func(entries map[string]Entry) error { delete(entries, name); return nil })
}

// SetState enables, disables or quarantines a plugin, with the reason for a person.
func (c *Catalogue) SetState(name, state, reason string) (Entry, error) {
	e, err := c.Get(name)
	if err != nil {
		return e, err
	}
	e.State, e.Reason, e.Since = state, reason, c.now().UTC().Truncate(time.Second)
	if err := e.check(); err != nil {
		return e, err
	}
	return e, c.change(func(entries map[string]Entry) error { entries[name] = e.clone(); return nil })
}

// change writes the lock file with f's changes, and then removes programs that nothing names any more. If it cannot be
// written, nothing has changed.
func (c *Catalogue) change(f func(map[string]Entry) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]Entry{}
	for name, e := range c.entries {
		next[name] = e
	}
	if err := f(next); err != nil {
		return err
	}
	if err := c.makeFolders(); err != nil {
		return err
	}
	if err := write(c.lockPath(), format(next)); err != nil {
		return fmt.Errorf("write %s: %w%s", c.lockPath(), err, c.roomHint(err))
	}
	c.entries = next
	c.sweep()
	return nil
}

// makeFolders makes what is missing and refuses what others can write to.
func (c *Catalogue) makeFolders() error {
	for _, dir := range []string{c.dir, filepath.Join(c.dir, programs), filepath.Join(c.dir, data)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("catalogue: %w", err)
		}
		if err := safeFolder(dir); err != nil {
			return fmt.Errorf("catalogue: %w", err)
		}
	}
	return nil
}

// stagedFor is how long a program without an entry stays: longer than a person thinks about granting.
const stagedFor = 24 * time.Hour

// sweep removes programs without an entry. A running plugin keeps its own open. c.mu must be held.
func (c *Catalogue) sweep() {
	used := map[string]bool{}
	for _, e := range c.entries {
		used[e.SHA256] = true
	}
	files, _ := os.ReadDir(filepath.Join(c.dir, programs))
	for _, f := range files {
		info, err := f.Info()
		if err == nil && !used[f.Name()] && c.now().Sub(info.ModTime()) > stagedFor {
			_ = os.Remove(filepath.Join(c.dir, programs, f.Name())) // the next change tries again
		}
	}
}
