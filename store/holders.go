package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Holder is another process that has files of a database open.
type Holder struct {
	PID     int
	Command string   // as in its command line, cut
	Files   []string // base names, a deleted one with " (deleted)"
	// Unknown says that the process looks as if it could have them open, and may not be looked into.
	Unknown bool
}

// String is "PID 41230 (hermes gateway run): state.db, state.db-wal".
func (h Holder) String() string {
	if h.Unknown {
		return fmt.Sprintf("PID %d (%s): cannot be looked into", h.PID, h.Command)
	}
	return fmt.Sprintf("PID %d (%s): %s", h.PID, h.Command, strings.Join(h.Files, ", "))
}

// retired says that the holder has a deleted WAL.
func (h Holder) retired() bool {
	return slices.ContainsFunc(h.Files, func(f string) bool { return strings.HasSuffix(f, deletedMark) && strings.Contains(f, "-") })
}

func names(holders []Holder) (list []string) {
	for _, h := range holders {
		list = append(list, fmt.Sprintf("pid %d (%s)", h.PID, h.Command))
	}
	return list
}

// A HeldError lists who holds a database that was to be rewritten.
type HeldError struct {
	Path    string
	Holders []Holder
}

func (e *HeldError) Error() string {
	lines := make([]string, len(e.Holders))
	for i, h := range e.Holders {
		lines[i] = "  " + h.String()
	}
	return fmt.Sprintf("another process is using %s\n%s", e.Path, strings.Join(lines, "\n"))
}

// ErrHeld says that other processes have a database open; errors.As a *HeldError names them.
var ErrHeld = errors.New("database is held by another process")

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// NotHeld returns a *HeldError if any other process has the database at path open.
func NotHeld(path string) error {
	holders, err := Holders(path)
	if err != nil {
		return err
	}
	if len(holders) > 0 {
		return &HeldError{Path: path, Holders: holders}
	}
	return nil
}

const deletedMark = " (deleted)"

// Holders lists the other processes that have the database at path, its WAL or its index open, deleted ones too. Files
// are compared by device and inode, so links and bind mounts do not hide a holder. Processes of other users cannot be
// looked into: of those only the ones count that look like a program that opens such files.
func Holders(path string) ([]Holder, error) { return holders(path, os.Getpid()) }

// holders passes over one process.
func holders(path string, but int) ([]Holder, error) {
	path = resolve(path)
	w := watched{path: path, ids: map[identity]string{}}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if id, err := at(path + suffix); err == nil {
			w.ids[id] = filepath.Base(path) + suffix
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes that hold %s: %w", path, err)
	}
	var found []Holder
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == but {
			continue
		}
		if h, ok := w.heldBy(pid); ok {
			found = append(found, h)
		}
	}
	return found, nil
}

// watched are the files of one database.
type watched struct {
	path string
	ids  map[identity]string
}

func (w watched) heldBy(pid int) (h Holder, ok bool) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrPermission) && suspicious(pid) {
		return Holder{PID: pid, Command: command(pid), Unknown: true}, true
	}
	for _, e := range entries {
		if file := w.file(filepath.Join(dir, e.Name())); file != "" && !slices.Contains(h.Files, file) {
			h.Files = append(h.Files, file)
		}
	}
	if len(h.Files) == 0 {
		return h, false
	}
	slices.Sort(h.Files)
	h.PID, h.Command = pid, command(pid)
	return h, true
}

// file names the file of the database that a descriptor is open on, "" for any other. A link that ends in " (deleted)"
// is believed only if the path leads elsewhere now: some file systems say it of files that are there.
func (w watched) file(link string) string {
	target, err := os.Readlink(link)
	if err != nil || !strings.HasPrefix(target, "/") {
		return ""
	}
	id, err := at(link)
	if err != nil {
		return ""
	}
	if name, is := w.ids[id]; is {
		return name
	}
	file, deleted := strings.CutSuffix(target, deletedMark)
	if !deleted || file != w.path && file != w.path+"-wal" && file != w.path+"-shm" {
		return ""
	}
	return filepath.Base(file) + deletedMark
}

// RetiredHolders names processes that have a deleted -wal or -shm of the database at path open. Such a process goes on
// writing into a WAL that nobody else sees; opening the database beside it would make a second one, and what the two
// write later damages the file. A failed look finds nobody: it must not keep a store from being opened.
func RetiredHolders(path string) []string {
	found, _ := holders(path, 0) // this process may be one
	return names(slices.DeleteFunc(found, func(h Holder) bool { return !h.retired() }))
}

// command is the command line of a process for a person: the base name of its program and its arguments, cut.
func command(pid int) string {
	const most = 80
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.FieldsFunc(string(bytes.ToValidUTF8(b, []byte("?"))), func(r rune) bool { return r == 0 })
	if err != nil || len(args) == 0 {
		return "command line unavailable"
	}
	args[0] = filepath.Base(args[0])
	line := []rune(strings.Join(args, " "))
	if len(line) > most {
		line = append(line[:most-1], '…')
	}
	return string(line)
}

// suspicious says that the command line of a process that cannot be looked into is that of a program that opens such
// files: then it counts as a holder, and any other process of another user does not.
func suspicious(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	for i, arg := range strings.Split(string(b), "\x00") {
		name := filepath.Base(arg)
		if i == 0 && (name == "hermes" || name == "hermes-agent" || name == "hermes-acp" || name == "hermes-supervisor") ||
			i > 0 && (arg == "hermes_cli.main" || arg == "acp_adapter" || strings.HasSuffix(arg, "hermes_cli/main.py") || name == "run_agent.py") {
			return true
		}
	}
	return false
}
