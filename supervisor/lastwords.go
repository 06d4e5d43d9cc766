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
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/event"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
)

const (
	// lastWordsFolder in the home is where workers write their last lines when their supervisor is gone: the pipe that it
	// read them from has died with it.
	lastWordsFolder = "logs/last-words"
	// lastWordsBytes are read of a file; a worker writes no more, and no line can be longer.
	lastWordsBytes = logs.MaxLine
	// lastWordsFiles are heard at most, as a fleet is smaller, and pluginWordsFiles of a plugin, which has a process or two.
	lastWordsFiles   = 100
	pluginWordsFiles = 4
	// lastWordsRemoved of a folder are removed, heard or not: nobody keeps a start waiting with a million files.
	lastWordsRemoved = 1000
	// lastWordsKept lines of a worker go into the journal, and lastWordsTold bytes of each; the log has all.
	lastWordsKept = 10
	lastWordsTold = 200
)

// wordsLeft are what workers of a supervisor that was killed have said last.
type wordsLeft struct {
	dir     string
	plugins map[string]string // by worker: its own folder, in which nothing is to be trusted
	log     hclog.Logger
	book    *logs.Book
	record  func(store.Event)
	now     func() time.Time
}

func (s *supervisor) wordsLeft() wordsLeft {
	w := wordsLeft{dir: filepath.Join(s.config().Home, filepath.FromSlash(lastWordsFolder)), plugins: map[string]string{}, log: s.log, book: s.book, record: s.journal.Record, now: s.now}
	if cat := s.plugins.cat; cat != nil {
		for _, e := range cat.List() {
			w.plugins[config.PluginWorker(e.Name)] = cat.DataDir(e.Name)
		}
	}
	return w
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
	told := store.Event{Kind: event.KindLastWords, Fields: map[string]string{}}
	w.hearFolder(w.dir, ".", "", lastWordsFiles, &told)
	for worker, dir := range w.plugins {
		w.hearFolder(dir, pluginWords, worker, pluginWordsFiles, &told)
	}
	if n := len(told.Fields); n > 0 {
		told.Message = wording.Count(n, "worker ended as its supervisor was gone, and left its", "workers ended as their supervisor was gone, and left their") +
			" last log lines"
		w.record(told)
	}
}

// hearFolder hears the files of a folder in dir, of one worker alone if it is named, at most so many, and removes them. It
// stays in dir, whatever its links say.
func (w wordsLeft) hearFolder(dir, name, of string, most int, told *store.Event) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return // as a rule nobody has ever said any
	}
	defer func() { _ = root.Close() }()
	folder, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	list, err := folder.Readdirnames(lastWordsRemoved)
	_ = folder.Close()
	if err != nil {
		return // it is empty
	}
	for n, file := range list {
		path := filepath.Join(name, file)
		if n < most {
			if err := w.hearOne(root, path, of, told); err != nil {
				w.log.Warn("the last lines of a worker cannot be read", "folder", dir, "error", err)
			}
		}
		if err := root.RemoveAll(path); err != nil {
			w.log.Warn("the last lines of a worker will be read again", "folder", dir, "error", err)
		}
	}
}

// hearOne reads one file, whose name is that of the worker and of its process, and adds it to what is told.
func (w wordsLeft) hearOne(root *os.Root, path, of string, told *store.Event) error {
	name := filepath.Base(path)
	hyphen := max(0, strings.LastIndex(name, "-"))
	worker := name[:hyphen]
	pid, err := strconv.Atoi(strings.TrimPrefix(name[hyphen:], "-"))
	if err != nil || worker == "" || of != "" && worker != of {
		return fmt.Errorf("%s: not the name of a worker and its process", path)
	}
	text, at, err := readBounded(root, path, lastWordsBytes)
	if err != nil {
		return err
	}
	if now := w.now(); at.After(now) {
		at = now // who wrote the file may say what it likes
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

// readBounded reads a plain file of ours and when it was written. What a pipe or a link would lead to is not read, and no file
// that has another name as well: whoever made that one may not be who may read it.
func readBounded(root *os.Root, path string, most int64) (text []byte, at time.Time, err error) {
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, at, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, at, err
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || sys.Nlink != 1 {
		return nil, at, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a plain file")}
	}
	text, err = io.ReadAll(io.LimitReader(f, most))
	return text, info.ModTime(), err
}
