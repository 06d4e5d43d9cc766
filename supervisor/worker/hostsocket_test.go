package worker

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A plugin owns the folder of its socket, so it can put anything where the supervisor has just made one.
func TestOnlyTheSocketThatWasMadeIsGivenAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give something away")
	}
	const guest = 65534
	outside := t.TempDir()
	file := filepath.Join(outside, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listen := func(path string) error {
		l, err := net.Listen("unix", path)
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	}
	socket := filepath.Join(outside, "socket")
	if err := listen(socket); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		put   func(path string) error
		given bool
		kept  string // what must stay as it was
	}{
		"the socket":              {put: listen, given: true},
		"nothing":                 {put: func(string) error { return nil }},
		"a file":                  {put: func(p string) error { return os.WriteFile(p, nil, 0o600) }},
		"a link":                  {put: func(p string) error { return os.Symlink(socket, p) }, kept: socket},
		"another name of one":     {put: func(p string) error { return os.Link(socket, p) }, kept: socket},
		"another name of a file":  {put: func(p string) error { return os.Link(file, p) }, kept: file},
		"a folder that was moved": {put: func(p string) error { return os.Mkdir(p, 0o700) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "give") // short: it is part of a socket's path
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.Chown(dir, guest, guest); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "s")
			if err := c.put(path); err != nil {
				t.Fatal(err)
			}
			if err := giveSocket(path); (err == nil) != c.given {
				t.Errorf("given away: %v", err)
			}
			if c.given && owner(t, path) != guest {
				t.Errorf("it belongs to %d", owner(t, path))
			}
			if c.kept != "" && owner(t, c.kept) != 0 {
				t.Errorf("%s belongs to %d now", c.kept, owner(t, c.kept))
			}
			_ = os.Remove(path)
		})
	}
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
