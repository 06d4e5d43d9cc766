package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

const (
	// livenessFD is the first descriptor after the standard ones, where ExtraFiles begin. Spec.Files come next, and then the
	// socket for host services.
	livenessFD = 3
	// handshakeLines is how far into stdout the handshake is looked for. A library that prints a banner is no reason to
	// refuse a worker; one that goes on printing is not ours.
	handshakeLines = 64
	// pipeLimit is how long a pipe may be empty after the process has ended and still not be at its end. Its group is dead by
	// then; only a process that the kernel cannot end keeps one open.
	pipeLimit = 200 * time.Millisecond
	// outputLimit is how long what it has left in its pipes is read at most. The last of it says why it died, and a busy
	// machine may be slow to read it; but who fills them without an end must not hold its successor back.
	outputLimit = 10 * time.Second
)

var liveness = ipc.LivenessFDEnv + "=" + strconv.Itoa(livenessFD)

// A process is one process of a worker in the terms of go-plugin, which calls its methods from goroutines of its own.
//
// It is used in place of go-plugin's own runner, which can hang for ever on a frozen plugin, crashes the host on odd
// output and leaves a zombie while a grandchild holds a pipe. Here the process is waited for as soon as it ends, whoever
// holds its pipes, and go-plugin sees only the handshake and the end.
type process struct {
	spec    Spec
	mark    mark
	book    *logs.Book
	orphans *Orphans
	sampler *sample.Sampler
	cmd     *exec.Cmd
	// enforced says what the kernel can hold for us.
	enforced Enforced
	// socketDir is where the worker's socket is, and no other's.
	socketDir string

	handshake *handshake
	nothing   *handshake // what go-plugin gets as stderr: nothing, then the end

	mu      sync.Mutex
	onBorn  func(pid int)
	aborted bool // before there was a process
	pid     int  // 0 before the start
	reaped  bool
	group   *cgroup          // nil: it has none
	files   []*os.File       // inherited beyond the usual ones
	host    net.Conn         // our end of the socket for host services, until it is served; nil: it has none
	sent    []syscall.Signal // by us, in order

	// Set by Start, before it returns.
	source  *logs.Source
	series  *sample.Series // nil if it ended at once
	started time.Time
	clamped bool // the configured limit of open files is above what may be set

	exited chan struct{} // closed when it has ended, before it is waited for

	// Set before done is closed.
	state      *os.ProcessState
	strays     int
	limitKills uint64        // processes that the kernel has ended in its cgroup, for its limit of memory
	peak       int64         // bytes that the cgroup has held at most, 0: not known
	done       chan struct{} // waited for, strays ended, all output read
}

var _ runner.Runner = (*process)(nil)

func newProcess(spec Spec, m mark, env Env) *process {
	return &process{
		spec: spec, mark: m, book: env.Log, orphans: env.Orphans, sampler: env.Sampler, enforced: env.Enforced, cmd: command(spec),
		handshake: newHandshake(), nothing: newHandshake(), exited: make(chan struct{}), done: make(chan struct{}),
	}
}

func command(spec Spec) *exec.Cmd {
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Dir = spec.Dir
	// A group of its own: a signal from a terminal goes to the supervisor alone, and the whole group can be ended at once.
	// Not Pdeathsig: it fires when the thread that forked ends, and Go's threads come and go.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if spec.Role == ipc.RolePlugin {
		// A group of its own comes with the session. Whoever has no terminal can type nothing into it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	return cmd
}

// adopt takes what go-plugin wants the process to know: its variables, and the folder for sockets that it made.
func (p *process) adopt(variables []string, socketDir string) {
	p.socketDir = socketDir
	if p.spec.ownSocket() {
		variables = append(variables, ipc.HostFDEnv+"="+strconv.Itoa(livenessFD+1+p.inherited()))
	}
	p.cmd.Env = environ(p.spec, p.mark, variables)
	if p.spec.CgroupEnv == "" && !p.enforced.Memory && !p.enforced.Processes {
		return // only a limit is worth it: what a worker of ours leaves behind is found without
	}
	if p.group = makeCgroup(cgroupHome(), p.mark, p.spec.Limits); p.group != nil && p.spec.CgroupEnv != "" {
		p.cmd.Env = append(p.cmd.Env, p.spec.CgroupEnv+"="+p.group.dir)
	}
}

// pipes are the three pipes between the supervisor and a worker. Both ends have close-on-exec; exec.Cmd gives the worker
// copies of its ends without.
type pipes struct{ outR, outW, errR, errW, liveR, liveW *os.File }

func newPipes() (p pipes, err error) {
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.outR, p.outW, err = os.Pipe(); err != nil {
		return p, err
	}
	if p.errR, p.errW, err = os.Pipe(); err != nil {
		return p, err
	}
	p.liveR, p.liveW, err = os.Pipe()
	return p, err
}

func (p pipes) close() {
	for _, f := range []*os.File{p.outR, p.outW, p.errR, p.errW, p.liveR, p.liveW} {
		_ = f.Close() // nil and closed files only return an error
	}
}

// Start makes the process. The context of go-plugin is not needed: nothing here waits.
func (p *process) Start(context.Context) error {
	pipes, err := newPipes()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.spec.Path, err)
	}
	p.cmd.Stdin = nil // /dev/null
	p.cmd.Stdout, p.cmd.Stderr = pipes.outW, pipes.errW
	files := p.takeFiles()
	if p.spec.ownSocket() {
		ours, theirs, err := socketPair()
		if err != nil {
			closeAll(files)
			pipes.close()
			return fmt.Errorf("start %s: %w", p.spec.Path, err)
		}
		p.setHost(ours)
		files = append(files, theirs)
	}
	p.cmd.ExtraFiles = append([]*os.File{pipes.liveR}, files...)
	err = p.spawn()
	closeAll(files)
	if err != nil {
		pipes.close()
		p.group.remove()
		// The path is in the error twice otherwise.
		if path, ok := errors.AsType[*os.PathError](err); ok {
			err = path.Err
		}
		return fmt.Errorf("start %s: %w", p.spec.Path, err)
	}
	_, _, _ = pipes.outW.Close(), pipes.errW.Close(), pipes.liveR.Close()
	pid := p.cmd.Process.Pid
	p.started = time.Now()
	p.orphans.begin(p.mark, pid)
	p.limit(pid)
	p.source = p.book.Source(p.spec.Name, pid)
	p.series, _ = p.sampler.Watch(pid) // an error: it has ended already, which wait finds out
	p.born(pid)

	var pumps sync.WaitGroup
	pumps.Go(func() { p.pumpStdout(pipes.outR) })
	pumps.Go(func() { _ = p.source.Copy(logs.StreamStderr, logs.NewLineReader(pipes.errR)) })
	go p.wait(pid, pipes, &pumps)
	p.onBorn(pid)
	return nil
}

// spawn makes the process, in its cgroup if it has one that it does not go into by itself. Where the kernel does not do that
// (before 5.7) the watch has to do.
func (p *process) spawn() error {
	if p.spec.CgroupEnv == "" {
		if dir := p.group.open(); dir != nil {
			defer func() { _ = dir.Close() }()
			p.cmd.SysProcAttr.UseCgroupFD, p.cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
		}
	}
	err := p.cmd.Start()
	if err == nil || !p.cmd.SysProcAttr.UseCgroupFD || spawnHopeless(err) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return err
	}
	p.group.remove()
	p.group = nil
	again := command(p.spec)
	again.Env, again.Stdout, again.Stderr, again.ExtraFiles = p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles
	p.cmd = again
	return p.cmd.Start()
}

// inherited is how many files the process gets beyond the usual ones; none if the start was broken off meanwhile.
func (p *process) inherited() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.files)
}

// takeFiles hands the files over to who closes them: the start, or the end of a start that never came to it.
func (p *process) takeFiles() []*os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	files := p.files
	p.files = nil
	return files
}

func (p *process) setHost(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host = conn
}

// takeHost hands the socket for host services over to who serves or closes it.
func (p *process) takeHost() net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn := p.host
	p.host = nil
	return conn
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// born makes the pid known to those who may want to signal it.
func (p *process) born(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
	if p.aborted {
		p.sent = append(p.sent, unix.SIGKILL)
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
}

// limit sets the limit of open files, soft and hard. It comes a moment after the start, long before the worker's main;
// what the Go runtime of a worker remembers by then cannot differ, as the supervisor's own limits are equal (Prepare).
func (p *process) limit(pid int) {
	want := p.spec.Limits.FDs
	if want == 0 {
		return
	}
	limit := unix.Rlimit{Cur: want, Max: want}
	err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil)
	if errors.Is(err, unix.EPERM) {
		// Above the hard limit that we have ourselves: the worker keeps that one.
		p.clamped = true
	}
}

// wait is the process's own goroutine. The order matters: while the leader is a zombie its pid, and with it the number of
// its group, cannot be given to another process, so that is when the group is killed.
func (p *process) wait(pid int, pipes pipes, pumps *sync.WaitGroup) {
	_ = awaitEnd(pid)
	close(p.exited)
	p.limitKills, p.peak = p.group.kills(), p.group.peak()
	p.mu.Lock()
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = p.cmd.Wait() // the state says it all; it cannot block, the files are ours
	p.state = p.cmd.ProcessState
	p.reaped = true
	p.mu.Unlock()
	p.strays = p.group.end(p.orphans.reap)
	p.strays += p.orphans.end(p.mark, pid, p.descendants())

	ended := make(chan struct{})
	go func() {
		pumps.Wait()
		close(ended)
	}()
	awaitOutput(ended, pipes.outR, pipes.errR)
	// Closing the read ends ends the pumps if the pipes are still held.
	_, _, _ = pipes.outR.Close(), pipes.errR.Close(), pipes.liveW.Close()
	<-ended
	p.handshake.end(errors.New("it ended before its handshake"))
	p.nothing.end(io.EOF)
	close(p.done)
}

// awaitOutput waits until all output has been read, which closes ended, or nothing comes any more though a pipe is open.
func awaitOutput(ended <-chan struct{}, pipes ...*os.File) {
	limit := time.NewTimer(outputLimit)
	defer limit.Stop()
	look := time.NewTicker(pipeLimit)
	defer look.Stop()
	for {
		select {
		case <-ended:
			return
		case <-limit.C:
			return
		case <-look.C:
			if !slices.ContainsFunc(pipes, holdsData) {
				return
			}
		}
	}
}

// holdsData says whether there is something to read in a pipe. One that was closed holds nothing.
func holdsData(pipe *os.File) bool {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	if err := conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
		return false
	}
	return n > 0
}

// pumpStdout finds the handshake and keeps all other lines.
func (p *process) pumpStdout(r io.Reader) {
	lines := logs.NewLineReader(r)
	var first string
	var certificate []byte
	for n := range handshakeLines {
		line, cut, err := lines.Next()
		if err != nil {
			p.stdoutClosed()
			return
		}
		if isHandshake(line) {
			p.handshake.give(withCertificate(line, certificate))
			break
		}
		if c, ok := ipc.CutCertificate(line); ok {
			certificate = bytes.Clone(c)
			continue
		}
		p.source.Line(logs.StreamStdout, line, cut)
		if n == 0 {
			first = string(line[:min(len(line), 80)])
		}
		if n == handshakeLines-1 {
			p.handshake.end(fmt.Errorf("no handshake in the first %d lines of its stdout, which begins with %q", handshakeLines, first))
		}
	}
	_ = p.source.Copy(logs.StreamStdout, lines)
}

func (p *process) descendants() []sample.Stat {
	if p.series == nil {
		return nil
	}
	p.series.Stop()
	return p.series.Descendants()
}

// signal sends signals to the worker's group, unless the worker has been waited for already. Before the start it makes
// the start end with SIGKILL.
func (p *process) signal(sigs ...syscall.Signal) {
	p.send(func(pid int) int { return -pid }, sigs)
}

// signalLeader sends signals to the worker alone.
func (p *process) signalLeader(sigs ...syscall.Signal) {
	p.send(func(pid int) int { return pid }, sigs)
}

func (p *process) send(to func(pid int) int, sigs []syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.pid == 0:
		p.aborted = true
	case !p.reaped:
		for _, sig := range sigs {
			p.sent = append(p.sent, sig)
			_ = unix.Kill(to(p.pid), sig)
		}
	}
}

// signals returns what we have sent, in order. A process that had ended by itself got none.
func (p *process) signals() []syscall.Signal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent)
}

func (p *process) id() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

func (p *process) isReaped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped
}

// ended returns how the process ended, nil if it was not waited for yet.
func (p *process) ended() *os.ProcessState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Wait returns when everything of the process is gone. How it ended is in state, which go-plugin need not know.
func (p *process) Wait(context.Context) error {
	<-p.done
	return nil
}

// Kill is what go-plugin calls after a failed start. The ladder of gentler ways is ours and comes before.
func (p *process) Kill(context.Context) error {
	p.signal(syscall.SIGKILL)
	return nil
}

// Stdout is the handshake line and nothing else.
func (p *process) Stdout() io.ReadCloser { return p.handshake }

// Stderr is empty: go-plugin's parser of log lines ends the program on some of them.
func (p *process) Stderr() io.ReadCloser { return p.nothing }

// Name names the worker in go-plugin's errors.
func (p *process) Name() string { return p.spec.Name }

// ID is the pid; empty before the start, so that go-plugin knows that there is nothing to end.
func (p *process) ID() string {
	if pid := p.id(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// Diagnose adds to go-plugin's error when the handshake is odd. We say it better elsewhere.
func (p *process) Diagnose(context.Context) string { return "" }

var errSocket = errors.New("its handshake names")

// PluginToHost lets go-plugin connect only to a socket in the folder that this worker was given: a handshake naming
// another worker's socket is a lie.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	if alias := p.spec.SocketAlias; alias != "" && filepath.Dir(addr) == alias {
		addr = filepath.Join(p.socketDir, filepath.Base(addr))
	}
	if network != "unix" || filepath.Dir(addr) != p.socketDir {
		return "", "", fmt.Errorf("%w %s %q, which is not in its own folder %s", errSocket, network, addr, p.socketDir)
	}
	if st, err := os.Lstat(addr); err != nil || st.Mode()&os.ModeSocket == 0 {
		return "", "", fmt.Errorf("%w %q, which is no socket", errSocket, addr)
	}
	return network, addr, nil
}

// HostToPlugin gives a plugin that runs as another user the socket that was made for it, by the name that it can reach. For all
// others both sides are one: they are on one machine.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	alias := p.spec.SocketAlias
	if alias == "" || network != "unix" || filepath.Dir(addr) != p.socketDir {
		return network, addr, nil
	}
	if err := giveSocket(addr); err != nil {
		return "", "", fmt.Errorf("host services of %s: %w", p.spec.Name, err)
	}
	return network, filepath.Join(alias, filepath.Base(addr)), nil
}
