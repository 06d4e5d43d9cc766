package cli

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// foreign says that a home is kept from this user, who can neither see whether a supervisor runs for it nor start one. A home
// of another user that this one may use (a folder that is shared, or mounted into a container) is as good as an own one.
func (p *program) foreign(home string) error {
	return p.foreignTo(home, os.Geteuid(), func(path string) error {
		return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	})
}

func (p *program) foreignTo(home string, uid int, use func(string) error) error {
	if !errors.Is(use(home), os.ErrPermission) {
		return nil
	}
	owner, ok := ownerAbove(home)
	if !ok || owner == uid {
		return nil // what is wrong with an own folder is told by the one who meets it
	}
	return ipc.WithKind(fmt.Errorf("home %s belongs to %s: %s may not read it, nor see whether a supervisor runs for it\nask as its owner: %s",
		home, called(owner), called(uid), p.asOwner(owner, home)), ipc.ErrDenied)
}

// asOwner is this call as the owner of its home makes it.
func (p *program) asOwner(owner int, home string) string {
	line := []string{"sudo", "-u", shellWord(account(owner)), "hermes-supervisor"}
	if p.home == "" {
		line = append(line, "--home", shellWord(home))
	}
	for _, a := range p.args {
		line = append(line, shellWord(a))
	}
	return strings.Join(line, " ")
}

// ownerAbove is who owns a file, or the nearest folder above it that can be seen.
func ownerAbove(path string) (uid int, ok bool) {
	for {
		if info, err := os.Stat(path); err == nil {
			s, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return 0, false
			}
			return int(s.Uid), true
		}
		parent := filepath.Dir(path)
		if parent == path {
			return 0, false
		}
		path = parent
	}
}

// account is how sudo is told a user: the name, or # and the number of one that has none.
func account(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return "#" + strconv.Itoa(uid)
}

// called is a user in a sentence.
func called(uid int) string { return "user " + strings.TrimPrefix(account(uid), "#") }
