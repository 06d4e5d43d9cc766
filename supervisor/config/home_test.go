package config

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestHomesThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "x")
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, FileName), 0o700); err != nil {
		t.Fatal(err)
	}
	huge := t.TempDir()
	write(t, filepath.Join(huge, FileName), strings.Repeat("#", maxFileBytes+1))
	loadErr := func(home string) error { _, err := Load(home); return err }
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"load a file":             {loadErr(file), "is a file, not a folder; choose another with --home"},
		"prepare a file":          {Prepare(file), "is a file, not a folder; choose another with --home"},
		"below a file":            {Prepare(filepath.Join(file, "home")), "not a directory"},
		"in /proc":                {Prepare("/proc/nothing-can-be-made-here"), "cannot create home /proc/nothing-can-be-made-here"},
		"config.yaml is a folder": {loadErr(folder), "is a directory"},
		"config.yaml is huge":     {loadErr(huge), "is larger than 256KiB; is it the right file?"},
	} {
		if tt.err == nil || !errors.Is(tt.err, ErrInvalid) || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, tt.err, tt.want)
		}
	}
}

func TestAHomeThatCannotBeWrittenIsRefused(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	home := t.TempDir()
	if err := os.Chmod(home, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(home); err == nil || !strings.Contains(err.Error(), "is not writable for user") {
		t.Errorf("error %v", err)
	}
}

func TestHomeIsTakenFromFlagThenEnvironmentThenUser(t *testing.T) {
	user := t.TempDir()
	t.Setenv("HOME", user)
	t.Setenv("HERMES_HOME", "/from/env")
	for _, tt := range []struct{ flag, env, want string }{
		{"/from/flag", "/from/env", "/from/flag"},
		{"", "/from/env", "/from/env"},
		{"", "~/x", filepath.Join(user, "x")},
		{"~", "", user},
		{"", "", filepath.Join(user, ".hermes")},
	} {
		t.Setenv("HERMES_HOME", tt.env)
		if got, err := Home(tt.flag); err != nil || got != tt.want {
			t.Errorf("Home(%q) with HERMES_HOME=%q = %q, %v; want %q", tt.flag, tt.env, got, err, tt.want)
		}
	}
}

func TestARunDirectoryIsPrivateAndOneForEachHome(t *testing.T) {
	base := filepath.Join(shortDir(t), "run")
	if err := os.Mkdir(base, 0o755); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	a, err := RunDirIn(base, home)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := RunDirIn(base, link)
	later, _ := RunDirIn(base, filepath.Join(link, "not", "there"))
	other, _ := RunDirIn(base, t.TempDir())
	real, _ := RunDirIn(base, filepath.Join(home, "not", "there"))
	if a != b || a == other || later != real {
		t.Errorf("one home %s and %s, another %s; to come %s and %s", a, b, other, later, real)
	}
	for _, dir := range []string{base, a} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
	socket, err := FindSocket(base, link)
	if err != nil || socket != SocketPath(a) {
		t.Errorf("socket %s, %v", socket, err)
	}
}

func TestRunDirectoriesThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for base, want := range map[string]string{
		"/tmp/" + strings.Repeat("x", 80): "is too long: sockets in it would have",
		file:                              "cannot create run directory",
		link:                              "is not a folder",
		"/proc/x":                         "cannot create run directory",
	} {
		_, err := RunDirIn(base, "/h")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--run-dir") || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: error %v, want %q", base, err, want)
		}
	}
	if os.Getuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		if err := os.Mkdir(foreign, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Skip("no other user here:", err)
		}
		if _, err := RunDirIn(foreign, "/h"); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("foreign folder: error %v", err)
		}
	}
}

func TestAClientFindsASupervisorThatWasStartedWithAnotherEnvironment(t *testing.T) {
	home, first, second := t.TempDir(), shortDir(t), shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", second)
	dir, err := RunDir(home)
	if err != nil || !strings.HasPrefix(dir, filepath.Join(second, "hermes-supervisor")) {
		t.Fatalf("run directory %s, %v", dir, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", first)
	if path, err := FindSocket("", home); err != nil || !strings.HasPrefix(path, first) {
		t.Errorf("with no supervisor: %s, %v", path, err)
	}
	if usual := usualBases(home); len(usual) < 2 || usual[0] != filepath.Join(first, "hermes-supervisor") {
		t.Errorf("usual places %v", usual)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	for _, base := range usualBases(home) {
		if strings.HasPrefix(base, "/run/user/") {
			t.Errorf("a supervisor without XDG_RUNTIME_DIR would use %s", base)
		}
	}
}

func TestRootFindsTheSupervisorOfAHomesOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may ask the supervisor of another user")
	}
	home, owner := t.TempDir(), 1_000_000+os.Getpid() // nobody's number, and of this run alone
	if err := os.Chown(home, owner, owner); err != nil {
		t.Skip("no other user here:", err)
	}
	base := tempBase(owner)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	socket := SocketPath(filepath.Join(base, RunName(home)))
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, socket, "")
	if got, err := FindSocket("", home); err != nil || got == socket {
		t.Errorf("what somebody else put there is taken for the owner's: %s, %v", got, err)
	}
	if err := os.Chown(socket, owner, owner); err != nil {
		t.Fatal(err)
	}
	if got, err := FindSocket("", home); err != nil || got != socket {
		t.Errorf("found %s, %v; want %s", got, err, socket)
	}
	if got, err := FindSocket(shortDir(t), home); err != nil || got == socket {
		t.Errorf("a --run-dir leads to another place: %s, %v", got, err)
	}
}

// What systemd makes for the service of a home is that home's alone, and is where its supervisor and all its clients meet.
func TestAHomesServiceHasAFolderOfItsOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make what systemd makes in /run")
	}
	home, other := t.TempDir(), t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", "")
	base := ServiceBase(home)
	if base == ServiceBase(other) {
		t.Fatalf("two homes share %s", base)
	}
	if path, err := FindSocket("", home); err != nil || strings.HasPrefix(path, base) {
		t.Errorf("before there is a service, a client is sent to %s, %v", path, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Mkdir(base, 0o700); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(base, RunName(home))
	if dir, err := RunDir(home); err != nil || dir != want {
		t.Errorf("run directory %s, %v; want %s", dir, err, want)
	}
	if dir, err := RunDir(other); err != nil || strings.HasPrefix(dir, base) {
		t.Errorf("another home's is %s, %v", dir, err)
	}
	temp, err := TempBase()
	if err != nil || strings.HasPrefix(temp, base) {
		t.Errorf("a command's own is %s, %v", temp, err)
	}
	_ = os.RemoveAll(temp)
	write(t, SocketPath(want), "")
	for _, xdg := range []string{"", shortDir(t)} {
		t.Setenv("XDG_RUNTIME_DIR", xdg)
		if path, err := FindSocket("", home); err != nil || path != SocketPath(want) {
			t.Errorf("with XDG_RUNTIME_DIR=%q a client finds %s, %v", xdg, path, err)
		}
	}
	// As the folder of a service of another user than root.
	if err := os.Chown(base, 12345, 12345); err != nil {
		t.Skip("no other user here:", err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if path, err := FindSocket("", home); err != nil || path != SocketPath(want) {
		t.Errorf("root finds %s, %v", path, err)
	}
	if dir, err := RunDir(home); err != nil || strings.HasPrefix(dir, base) {
		t.Errorf("root's own supervisor uses %s, %v", dir, err)
	}
}

// A socket that a supervisor left when it was killed stays, and hides none that answers.
func TestAClientPrefersASocketThatAnswers(t *testing.T) {
	home, xdg := t.TempDir(), shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", xdg)
	first := SocketPath(filepath.Join(xdg, runName, RunName(home)))
	last := SocketPath(filepath.Join(tempBase(os.Getuid()), RunName(home)))
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(last)) })
	for _, c := range []struct {
		name        string
		first, last func(*testing.T, string)
		want        string
	}{
		{"one that was left", left, nil, first},
		{"one that was left, and one that answers", left, answering, last},
		{"one that was left, and one that is too busy to accept", left, busy, last},
		{"two that answer", answering, answering, first},
		{"two that were left", left, left, first},
		{"one that answers, and one that was left", answering, left, first},
		{"one that answers", nil, answering, last},
		{"none", nil, nil, first},
	} {
		t.Run(c.name, func(t *testing.T) {
			for path, put := range map[string]func(*testing.T, string){first: c.first, last: c.last} {
				if put != nil {
					put(t, path)
				}
			}
			if got, err := FindSocket("", home); err != nil || got != c.want {
				t.Errorf("found %s, %v; want %s", got, err, c.want)
			}
		})
	}
	if os.Getuid() != 0 {
		return
	}
	// Root asks the supervisor of a home's owner.
	owner := 1_000_000 + os.Getpid()
	if err := os.Chown(home, owner, owner); err != nil {
		t.Skip("no other user here:", err)
	}
	theirs := SocketPath(filepath.Join(tempBase(owner), RunName(home)))
	t.Cleanup(func() { _ = os.RemoveAll(tempBase(owner)) })
	left(t, last)
	answering(t, theirs)
	if err := os.Chown(theirs, owner, owner); err != nil {
		t.Fatal(err)
	}
	if got, err := FindSocket("", home); err != nil || got != theirs {
		t.Errorf("root found %s, %v; want %s", got, err, theirs)
	}
}

// Where anybody may make a folder, as in /tmp, another user could have made a client's first, with a supervisor of his own in it.
func TestAClientAsksNobodyElsesSupervisor(t *testing.T) {
	home, public, private := t.TempDir(), shortDir(t), shortDir(t)
	if err := os.Chmod(public, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		in    string
		put   func(base string) error
		asked bool
	}{
		{"a folder of one's own", public, func(string) error { return nil }, true},
		{"a folder of another user", public, func(base string) error { return os.Chown(base, 12345, 12345) }, false},
		{"a folder of the home's owner", public, func(base string) error {
			return errors.Join(os.Chown(home, 12345, 12345), os.Chown(base, 12345, 12345))
		}, true},
		{"a link", public, func(base string) error {
			real := filepath.Join(private, "real")
			return errors.Join(os.Rename(base, real), os.Symlink(real, base))
		}, false},
		{"a folder of another user where nobody else makes one", private, func(base string) error { return os.Chown(base, 12345, 12345) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", c.in)
			t.Cleanup(func() { _ = os.Chown(home, os.Getuid(), os.Getgid()) })
			base := filepath.Join(c.in, runName)
			socket := SocketPath(filepath.Join(base, RunName(home)))
			answering(t, socket)
			t.Cleanup(func() { _ = os.RemoveAll(base) })
			if err := c.put(base); err != nil {
				t.Skip("no other user here:", err)
			}
			got, err := FindSocket("", home)
			if asked := err == nil && got == socket; asked != c.asked {
				t.Errorf("found %s, %v; is it asked: %v, want %v", got, err, asked, c.asked)
			}
		})
	}
}

// answering listens at path until the test ends.
func answering(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

// busy listens at path, and accepts nothing while its queue is full.
func busy(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = syscall.Close(fd), os.Remove(path) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// left makes a socket behind which there is nobody any more.
func left(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	t.Cleanup(func() { _ = os.Remove(path) })
}

// shortDir is TempDir with a name that leaves room for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
