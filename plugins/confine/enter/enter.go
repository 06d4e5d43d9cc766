// Package enter makes a process that was just forked into a confined plugin: limits, Landlock, user, capabilities, and
// then the program itself, through the descriptor that was verified. It is all that hermes-confine does.
//
// Rules: it starts from a single Go program without any other goroutine, locked to its thread, whose credentials the
// plugin inherits. Every step that the kernel offers must succeed, or the plugin does not start; what the kernel lacks
// is left out, and Report says so.
package enter

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
)

// socketDirEnv is where go-plugin says in which folder the plugin's socket must be.
const socketDirEnv = "PLUGIN_UNIX_SOCKET_DIR"

// Report says what this kernel enforces.
func Report() confine.Report {
	return confine.Layers(version(), os.Geteuid() == 0)
}

// Run applies the policy and becomes the plugin. It returns only with an error.
func Run(p confine.Policy) error {
	runtime.LockOSThread()
	unix.Umask(0o077)
	if err := joinCgroup(); err != nil {
		return err
	}
	script, err := isScript(confine.ProgramFD)
	if err != nil {
		return err
	}
	who, err := lookup(p.User)
	if err != nil {
		return err
	}
	if err := folders(p, who); err != nil {
		return err
	}
	env, err := environment(p, who)
	if err != nil {
		return err
	}
	if err := limit(p.Limits, who); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := restrict(p, os.Getenv(socketDirEnv), version()); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if err := become(who); err != nil {
		return err
	}
	// An interpreter opens the script anew, through the descriptor; a program has been read by then.
	if script {
		_, err = unix.FcntlInt(confine.ProgramFD, unix.F_SETFD, 0)
	} else {
		unix.CloseOnExec(confine.ProgramFD)
	}
	if err != nil {
		return fmt.Errorf("keep the script open: %w", err)
	}
	err = syscall.Exec("/proc/self/fd/"+strconv.Itoa(confine.ProgramFD), []string{p.Name}, env)
	return fmt.Errorf("execute it: %w", err)
}

// joinCgroup moves this process into the cgroup that the supervisor has made for the plugin, if it could make one.
func joinCgroup() error {
	dir := os.Getenv(confine.CgroupEnv)
	if dir == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("0")
		err = errors.Join(err, f.Close())
	}
	// The supervisor finds what the plugin leaves behind without one as well, as far as it can.
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: it has no cgroup of its own: %v\n", confine.Program, err)
	}
	return os.Unsetenv(confine.CgroupEnv)
}

// isScript tells the two kinds of programs that are executed. Others (a file for another machine's emulator, say) would
// be executed by something that nobody has verified.
func isScript(fd int) (bool, error) {
	head := make([]byte, 4)
	n, err := unix.Pread(fd, head, 0)
	switch {
	case err != nil:
		return false, fmt.Errorf("descriptor %d, the plugin's program: %w", fd, err)
	case bytes.HasPrefix(head[:n], []byte("\x7fELF")):
		return false, nil
	case bytes.HasPrefix(head[:n], []byte("#!")):
		return true, nil
	}
	return false, errors.New("it is neither a program of this machine nor a script that begins with #!")
}

// An account is the user that a plugin runs as, nil for the one that the supervisor has.
type account struct{ uid, gid int }

func lookup(name string) (*account, error) {
	if name == "" {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("user %s: only a supervisor that runs as root can start a plugin as another user", name)
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, fmt.Errorf("user %s: there is no such user on this machine", name)
		}
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil || uid == 0 {
		return nil, fmt.Errorf("user %s has uid %s and gid %s; a user other than root is needed", name, u.Uid, u.Gid)
	}
	return &account{uid: uid, gid: gid}, nil
}

// folders makes the plugin's own folders and gives them to its user.
func folders(p confine.Policy, who *account) error {
	own := append([]string{p.Data, filepath.Join(p.Data, "tmp")}, p.Own...)
	for _, dir := range own {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("its own folder: %w", err)
		}
	}
	if who == nil {
		return nil
	}
	if dir := os.Getenv(socketDirEnv); dir != "" {
		own = append(own, dir)
	}
	for _, dir := range own {
		if err := os.Lchown(dir, who.uid, who.gid); err != nil {
			return fmt.Errorf("its own folder: %w", err)
		}
	}
	return nil
}

// environment is what was inherited, with home and temporary files in the plugin's own folder. Another user reaches
// them through descriptors: all above them is closed to it.
func environment(p confine.Policy, who *account) ([]string, error) {
	data := p.Data
	if who != nil {
		data = fmt.Sprintf("/proc/self/fd/%d", confine.DataFD)
		if err := pass(p.Data, confine.DataFD); err != nil {
			return nil, err
		}
		if dir := os.Getenv(socketDirEnv); dir != "" {
			if err := pass(dir, confine.SocketFD); err != nil {
				return nil, err
			}
			if err := os.Setenv(socketDirEnv, fmt.Sprintf("/proc/self/fd/%d", confine.SocketFD)); err != nil {
				return nil, err
			}
			defer func() { _ = os.Setenv(socketDirEnv, dir) }()
		}
	}
	for name, value := range map[string]string{"HOME": data, "TMPDIR": filepath.Join(data, "tmp")} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	if err := os.Chdir(p.Data); err != nil {
		return nil, fmt.Errorf("its own folder: %w", err)
	}
	return os.Environ(), nil
}

// pass opens a folder under a number that survives exec.
func pass(dir string, number int) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("folder %s: %w", dir, err)
	}
	if err := unix.Dup3(fd, number, 0); err != nil {
		return fmt.Errorf("folder %s: %w", dir, err)
	}
	return nil
}

// limit sets the resource limits, soft and hard. One that is above what is inherited is left as it is.
func limit(l confine.Limits, who *account) error {
	set := func(what string, resource int, value uint64) error {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return fmt.Errorf("limit of %s: %w", what, err)
		}
		value = min(value, now.Max)
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("limit of %s: %w", what, err)
		}
		return nil
	}
	err := set("core dumps", unix.RLIMIT_CORE, 0)
	for _, r := range []struct {
		what     string
		resource int
		value    uint64
	}{
		{"open files", unix.RLIMIT_NOFILE, l.FDs},
		{"file size", unix.RLIMIT_FSIZE, l.FileBytes},
		{"memory", unix.RLIMIT_DATA, l.DataBytes},
		{"processes", unix.RLIMIT_NPROC, processes(l.Processes, who)},
	} {
		if err == nil && r.value > 0 {
			err = set(r.what, r.resource, r.value)
		}
	}
	return err
}

// processes is the limit of a user's processes. The kernel counts all of them, whoever started them, so for a user that
// is not the plugin's alone those that are there are added.
func processes(limit uint64, who *account) uint64 {
	if limit == 0 || who != nil {
		return limit
	}
	return limit + threadsOf(os.Getuid())
}

// threadsOf counts the threads of a user.
func threadsOf(uid int) uint64 {
	var n uint64
	tasks, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	for _, t := range tasks {
		var st unix.Stat_t
		if unix.Stat(t, &st) == nil && int(st.Uid) == uid {
			n++
		}
	}
	return n
}
