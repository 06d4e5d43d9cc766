package plugins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// spillAge is how long a spill file is kept: longer than a conversation goes back to what it saw.
	spillAge = 7 * 24 * time.Hour
	// spillTotal bounds all spill files together, as a folder that only grows fills a small disk in months.
	spillTotal = 1 << 30
)

// spills is the folder of whole outputs that were too long for a result.
type spills struct {
	dir string
	now func() time.Time
	mu  sync.Mutex
}

var errNoSpill = errors.New("no folder for whole outputs is configured")

// create opens a new file and removes what is too old or too much.
func (s *spills) create(tool string) (*os.File, error) {
	if s.dir == "" {
		return nil, errNoSpill
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("spill folder: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	f, err := os.CreateTemp(s.dir, fmt.Sprintf("%s-%s-*.txt", s.now().UTC().Format("20060102T150405"), tool))
	if err != nil {
		return nil, fmt.Errorf("spill file: %w", err)
	}
	return f, nil
}

// prune removes files that are too old, and the oldest ones while all together are too much. What cannot be
// removed stays: a full folder is no reason to fail a call.
func (s *spills) prune() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	type file struct {
		path string
		size int64
		time time.Time
	}
	var files []file
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(e.Name()) != ".txt" {
			continue
		}
		files = append(files, file{filepath.Join(s.dir, e.Name()), info.Size(), info.ModTime()})
		total += info.Size()
	}
	slices.SortFunc(files, func(a, b file) int { return a.time.Compare(b.time) })
	for _, f := range files {
		if s.now().Sub(f.time) < spillAge && total <= spillTotal {
			break
		}
		if os.Remove(f.path) == nil {
			total -= f.size
		}
	}
}
