package catalogue

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// formatVersion of the lock file. A file of a newer one is refused: to write it back would lose what is new in it.
	formatVersion = 1
	// maxLockFile is far above what a catalogue of hundreds of plugins takes.
	maxLockFile = 16 << 20
)

// document is the lock file.
type document struct {
	Comment string  `json:"comment"`
	Version int     `json:"version"`
	Sum     string  `json:"sum"` // of the plugins below, so that a change by another hand is seen
	Plugins []Entry `json:"plugins"`
}

const comment = "Written by `hermes-supervisor plugins`. What is changed here by hand is refused."

// parse reads a lock file. It is strict: what is not understood may be what keeps a plugin in.
func parse(text []byte) ([]Entry, error) {
	if len(text) > maxLockFile {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrLockFile, len(text), maxLockFile)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLockFile, err)
	}
	if head.Version != formatVersion {
		return nil, fmt.Errorf("%w: it is of version %d, this program reads version %d", ErrLockFile, head.Version, formatVersion)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var d document
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLockFile, err)
	}
	seen, tools := map[string]bool{}, map[string]string{}
	for _, e := range d.Plugins {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLockFile, err)
		}
		if seen[e.Name] {
			return nil, fmt.Errorf("%w: plugin %s is in it twice", ErrLockFile, e.Name)
		}
		seen[e.Name] = true
		for _, t := range e.Tools {
			if owner, ok := tools[t.Name]; ok {
				return nil, fmt.Errorf("%w: %w", ErrLockFile, &ClashError{Tool: t.Name, Owner: owner, Other: e.Name})
			}
			tools[t.Name] = e.Name
		}
	}
	if sum := sumOf(d.Plugins); d.Sum != sum {
		return nil, fmt.Errorf("%w: it was changed by something else than this program (its sum is %q, its content has %s); undo that, or remove the file and add the plugins again",
			ErrLockFile, cut(d.Sum, 80), sum)
	}
	return d.Plugins, nil
}

// format writes a lock file: the same entries always give the same bytes.
func format(entries map[string]Entry) []byte {
	list := slices.SortedFunc(maps.Values(entries), func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	if list == nil {
		list = []Entry{}
	}
	return indented(document{Comment: comment, Version: formatVersion, Sum: sumOf(list), Plugins: list})
}

func sumOf(list []Entry) string {
	var compact bytes.Buffer
	// The spaces within a schema change when the file is indented, and mean nothing.
	_ = json.Compact(&compact, indented(list))
	sum := sha256.Sum256(compact.Bytes())
	return hex.EncodeToString(sum[:])
}

// indented is the JSON of our own types, whose only foreign part, the schemas, was checked to be JSON.
func indented(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("lock file: %v", err))
	}
	return b.Bytes()
}

// write replaces a file so that after a crash either the old or the new content is there, whole.
func write(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".plugins.lock-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err = f.Chmod(0o600); err != nil {
		return err
	}
	if _, err = f.Write(content); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes a new name in a folder durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
