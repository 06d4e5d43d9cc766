package ipc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const (
	// lastLines and lastBytes bound what is kept of the newest lines: what a worker says in some minutes, and a trace.
	lastLines = 50
	lastBytes = 32 << 10
	// wordsBytes bound the file. What a worker says in the second that it has left fits beside what was kept.
	wordsBytes = 64 << 10
)

// LastWords is where a worker's log goes: to the supervisor, and when that is gone, to a file which the next one reads. A pipe
// whose reader has died takes what was in it along, so the newest lines are kept until then. It is safe for concurrent use.
type LastWords struct {
	out  io.Writer
	path string // of the file, without the number of this process; empty: nowhere

	mu   sync.Mutex
	kept [][]byte
	held int // bytes in kept
	gone bool
	file *os.File
	left int // bytes that still go into it
}

// NewLastWords returns one that writes to out as long as somebody reads it. path is what LastWordsEnv says; empty: what is said
// later is lost.
func NewLastWords(out io.Writer, path string) *LastWords {
	return &LastWords{out: out, path: path}
}

// Write takes one line. It never fails: a log that cannot be written has nowhere to say so.
func (w *LastWords) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.gone {
		w.keep(line)
		if _, err := w.out.Write(line); err != nil {
			w.orphaned()
		}
	} else {
		w.save(line)
	}
	return len(line), nil
}

// SupervisorGone has the lines that were kept and all that come from now on written to the file.
func (w *LastWords) SupervisorGone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orphaned()
}

func (w *LastWords) keep(line []byte) {
	if len(line) > lastBytes {
		line = append(bytes.Clone(line[:lastBytes-1]), '\n')
	}
	w.kept, w.held = append(w.kept, bytes.Clone(line)), w.held+len(line)
	for len(w.kept) > lastLines || w.held > lastBytes {
		w.held -= len(w.kept[0])
		w.kept[0] = nil
		w.kept = w.kept[1:]
	}
}

func (w *LastWords) orphaned() {
	if w.gone {
		return
	}
	w.gone = true
	if w.path != "" {
		// Made here and by nobody else, for the owner alone. Without it there is no place left to say anything. A plugin makes
		// the folder, too, in its own one.
		_ = os.Mkdir(filepath.Dir(w.path), 0o700)
		w.file, _ = os.OpenFile(fmt.Sprintf("%s-%d", w.path, os.Getpid()), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		w.left = wordsBytes
	}
	for _, line := range w.kept {
		w.save(line)
	}
	w.kept = nil
}

// save writes a line that still fits, whole or not at all.
func (w *LastWords) save(line []byte) {
	if w.file == nil || len(line) > w.left {
		return
	}
	n, _ := w.file.Write(line)
	w.left -= n
}
