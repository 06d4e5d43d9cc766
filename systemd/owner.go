package systemd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrForeign says that a unit serves another home than the one it was to be written or removed for.
var ErrForeign = errors.New("serves another home")

// ErrStranger says that a unit's file is none of ours.
var ErrStranger = errors.New("was not written by hermes-supervisor")

// homeKey is the key in [Unit] by which every file of ours, whatever its kind, says which home it serves. The manager passes over
// keys that begin with X-.
const homeKey = "X-HermesHome"

// ours are texts of which a file of ours has at least one, also after an edit and in releases that wrote no homeKey.
var ours = [][]byte{
	[]byte("\n" + homeKey + "="), []byte(seal),
	[]byte("printed by `hermes-supervisor systemd show`"), []byte("Description=Control socket of the Hermes supervisor"),
}

// A claim is what a unit file says of whose it is.
type claim struct {
	ours   bool
	home   string // a word as units quote it; empty: it names none
	socket string // the path at which it listens
}

func claimOf(text []byte) claim {
	c := claim{ours: slices.ContainsFunc(ours, func(mark []byte) bool { return bytes.Contains(text, mark) })}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case homeKey:
			c.home = value
		case "ExecStart": // after the mark, as it is what the service does
			_, rest, named := strings.Cut(value, " --home ")
			if word, runs := strings.CutSuffix(rest, " run"); named && runs {
				c.home = word
			}
		case "ListenStream":
			c.socket = value
		}
	}
	return c
}

// sameFolder says whether two paths lead to one folder. One that is yet to be made is the same if all above it is.
func sameFolder(a, b string) bool {
	a, b = filepath.Clean(a), filepath.Clean(b)
	if a == b {
		return true
	}
	one, errA := os.Stat(a)
	other, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(one, other)
	}
	return errA != nil && errB != nil && filepath.Base(a) == filepath.Base(b) && sameFolder(filepath.Dir(a), filepath.Dir(b))
}

// foreign is an error, with what to do about it, if a unit file is not one of this installation's home.
func (in Installation) foreign(verb, file string, text []byte) error {
	c := claimOf(text)
	installs := verb == "install"
	switch {
	case in.Home == "", c.home != "" && sameFolder(unquotedWord(c.home), in.Home):
		return nil
	case c.home != "" && installs:
		return fmt.Errorf("%s %w, %s: choose another name with --name, or remove it first: systemd uninstall --home %[3]s", file, ErrForeign, c.home)
	case c.home != "":
		return fmt.Errorf("%s %w, %s: nothing was stopped or removed; say --home %[3]s if that one is meant, or --name", file, ErrForeign, c.home)
	case c.socket != "" && path.Base(path.Dir(c.socket)) == in.RunName, c.ours && c.socket == "":
		return nil
	case c.ours && installs:
		return fmt.Errorf("%s %w, by the socket %s: choose another name with --name, or remove it first: systemd uninstall --home HOME", file, ErrForeign, c.socket)
	case c.ours:
		return fmt.Errorf("%s %w, by the socket %s: nothing was stopped or removed; say --home if that one is meant, or --name", file, ErrForeign, c.socket)
	case installs:
		return fmt.Errorf("%s %w: choose another name with --name, or move it away first", file, ErrStranger)
	}
	return fmt.Errorf("%s %w: nothing was stopped or removed; choose the right name with --name, or remove that file yourself", file, ErrStranger)
}
