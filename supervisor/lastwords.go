package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/event"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
)

const (
	// lastWordsFolder in the home is where workers write their last lines when their supervisor is gone: the pipe that it
	// read them from has died with it.
	lastWordsFolder = "logs/last-words"
	// lastWordsBytes are read of a file; a worker writes no more, and no line can be longer.
	lastWordsBytes = logs.MaxLine
	// lastWordsFiles are heard at most; a fleet is smaller. All are removed.
	lastWordsFiles = 100
	// lastWordsKept lines of a worker go into the journal, and lastWordsTold bytes of each; the log has all.
	lastWordsKept = 10
	lastWordsTold = 200
)

// wordsLeft are what workers of a supervisor that was killed have said last.
type wordsLeft struct {
	dir    string
	log    hclog.Logger
	book   *logs.Book
	record func(store.Event)
}

func (s *supervisor) wordsLeft() wordsLeft {
	return wordsLeft{dir: filepath.Join(s.config().Home, filepath.FromSlash(lastWordsFolder)), log: s.log, book: s.book, record: s.journal.Record}
}

// folder makes the folder if it is not there and returns it; empty if it cannot be had.
func (w wordsLeft) folder() string {
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		w.log.Debug("the last lines of workers whose supervisor is killed will be lost", "error", err)
		return ""
	}
	return w.dir
}

// hear takes all of it into the log, with the time at which it was said, tells the journal of it once, and removes it. It is
// called when those workers are gone.
func (w wordsLeft) hear() {
	list, err := os.ReadDir(w.dir)
	if err != nil {
		return // as a rule nobody has ever said any
	}
	told := store.Event{Kind: event.KindLastWords, Fields: map[string]string{}}
	for n, entry := range list {
		path := filepath.Join(w.dir, entry.Name())
		if n < lastWordsFiles {
			if err := w.hearOne(path, &told); err != nil {
				w.log.Warn("the last lines of a worker cannot be read", "error", err)
			}
		}
		if err := os.RemoveAll(path); err != nil {
			w.log.Warn("the last lines of a worker will be read again", "error", err)
		}
	}
	if n := len(told.Fields); n > 0 {
		told.Message = fmt.Sprintf("%d workers ended as their supervisor was gone, and left their last log lines", n)
		w.record(told)
	}
}

// hearOne reads one file, whose name is that of the worker and of its process, and adds it to what is told.
func (w wordsLeft) hearOne(path string, told *store.Event) error {
	name := filepath.Base(path)
	hyphen := max(0, strings.LastIndex(name, "-"))
	worker := name[:hyphen]
	pid, err := strconv.Atoi(strings.TrimPrefix(name[hyphen:], "-"))
	if err != nil || worker == "" {
		return fmt.Errorf("%s: not the name of a worker and its process", path)
	}
	text, at, err := readBounded(path, lastWordsBytes)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		l := logs.Parse(bytes.TrimRight(line, "\n"), logs.StreamStderr, at)
		l.Worker, l.PID = worker, pid
		l.Fields = append(l.Fields, logs.Field{Key: "last_words", Value: "true"})
		w.book.Add(l)
	}
	if at.After(told.Time) {
		told.Time = at
	}
	// From the log, where no secret is in it any more: part of one that is cut would not be known again.
	var said []string
	for _, l := range w.book.Tail(worker, lastWordsKept) {
		if l.PID == pid {
			said = append(said, cutTo(l.Message, lastWordsTold))
		}
	}
	told.Fields[name] = strings.Join(said, "\n")
	return nil
}

// readBounded reads a plain file of ours and when it was written. What a pipe or a link of that name would lead to is not read.
func readBounded(path string, most int64) (text []byte, at time.Time, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, at, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, at, err
	}
	if !info.Mode().IsRegular() {
		return nil, at, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a plain file")}
	}
	text, err = io.ReadAll(io.LimitReader(f, most))
	return text, info.ModTime(), err
}
