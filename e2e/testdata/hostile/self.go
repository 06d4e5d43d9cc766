package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity is what a plugin knows of itself.
type identity struct {
	UID, GID int
	Groups   []int
	Session  bool     // of its own
	Terminal bool     // it can open one
	Foreign  []string // descriptors that it did not open itself and should not have
}

// who tells who it runs as, and what it was left by whoever started it.
func who(context.Context, settings) (string, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return "", err
	}
	session, _ := unix.Getsid(0)
	id := identity{UID: os.Getuid(), GID: os.Getgid(), Groups: groups, Session: session == os.Getpid()}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		_ = tty.Close()
		id.Terminal = true
	}
	for fd := range 256 {
		if foreign := judge(fd); foreign != "" {
			id.Foreign = append(id.Foreign, foreign)
		}
	}
	return said(id), nil
}

// judge says what is wrong with a descriptor, nothing if it is not open or the plugin's own.
func judge(fd int) string {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return ""
	}
	flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	switch kind := st.Mode & unix.S_IFMT; kind {
	case unix.S_IFIFO, unix.S_IFCHR, 0: // pipes, /dev/null, what the runtime polls with
		return ""
	case unix.S_IFREG:
		// The runtime keeps open what its cgroup says of processors.
		var fs unix.Statfs_t
		if unix.Fstatfs(fd, &fs) == nil && (fs.Type == unix.CGROUP_SUPER_MAGIC || fs.Type == unix.CGROUP2_SUPER_MAGIC) && flags&unix.O_ACCMODE == unix.O_RDONLY {
			return ""
		}
		return fmt.Sprintf("%d: a file, inode %d", fd, st.Ino)
	case unix.S_IFSOCK:
		name, err := unix.Getsockname(fd)
		if err != nil {
			return fmt.Sprintf("%d: a socket: %v", fd, err)
		}
		at, ok := name.(*unix.SockaddrUnix)
		if ok && filepath.Dir(at.Name) == os.Getenv("PLUGIN_UNIX_SOCKET_DIR") {
			return ""
		}
		return fmt.Sprintf("%d: the socket %+v", fd, name)
	case unix.S_IFDIR:
		if flags&unix.O_PATH != 0 && (fd == 50 || fd == 51) { // its folders, if it is another user
			return ""
		}
		return fmt.Sprintf("%d: a folder", fd)
	default:
		return fmt.Sprintf("%d: a file of kind %o, inode %d", fd, kind, st.Ino)
	}
}

// trace takes another process over, as a debugger does.
func trace(_ context.Context, s settings) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.PtraceAttach(s.N); err != nil {
		return "", err
	}
	_, _ = syscall.Wait4(s.N, nil, 0, nil)
	return "traced", syscall.PtraceDetach(s.N)
}

// forks starts n processes and says how many it got.
func forks(_ context.Context, s settings) (string, error) {
	var list []*exec.Cmd
	var last error
	for range s.N {
		c := exec.Command("sleep", "61")
		if last = c.Start(); last != nil {
			break
		}
		list = append(list, c)
	}
	for _, c := range list {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	if last != nil {
		return "", errors.Join(fmt.Errorf("%d of %d were started", len(list), s.N), last)
	}
	return "all were started", nil
}
