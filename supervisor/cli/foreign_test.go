package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// A home that is kept from this user is called so, and never one without a supervisor.
func TestAHomeThatThisUserMayNotReadIsNotCalledOneWithoutASupervisor(t *testing.T) {
	home, own := t.TempDir(), os.Geteuid()
	const nobodysNumber = 4_000_000
	refused := func(path string) error { return &os.PathError{Op: "access", Path: path, Err: syscall.EACCES} }
	for name, tt := range map[string]struct {
		home string
		uid  int
		use  func(string) error
		want []string
	}{
		"kept from this user": {home, nobodysNumber, refused, []string{
			"home " + home + " belongs to " + called(own) + ": user 4000000 may not read it",
			"sudo -u " + shellWord(account(own)) + " hermes-supervisor --home " + home + " ctl status"}},
		"in a folder that is kept from this user": {filepath.Join(home, "a", "b"), nobodysNumber, refused, []string{"belongs to " + called(own)}},
		"another user's that this one may use":    {home, nobodysNumber, func(string) error { return nil }, nil},
		"not there":                               {filepath.Join(home, "none"), nobodysNumber, func(string) error { return syscall.ENOENT }, nil},
		"an own one that is closed":               {home, own, refused, nil},
		"on a file system that takes no writes":   {home, nobodysNumber, func(string) error { return syscall.EROFS }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&program{args: []string{"ctl", "status"}}).foreignTo(tt.home, tt.uid, tt.use)
			if (err != nil) != (tt.want != nil) || err != nil && !errors.Is(err, ipc.ErrDenied) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v lacks %q", err, want)
				}
			}
		})
	}
}

func TestASocketThatThisUserMayNotUseNamesItsOwner(t *testing.T) {
	dir := t.TempDir()
	p := &program{home: "/h", args: []string{"--home", "/h", "kanban", "create", "two words"}}
	err := p.noSupervisor("/h", filepath.Join(dir, "control.sock"), fmt.Errorf("dial: %w", syscall.EACCES))
	want := "sudo -u " + shellWord(account(os.Getuid())) + " hermes-supervisor --home /h kanban create 'two words'"
	if !errors.Is(err, ipc.ErrDenied) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v lacks %q", err, want)
	}
}
