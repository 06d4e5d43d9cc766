package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// socket returns the control socket of this call's home. A home that is kept from this user, and has no socket that could be
// asked, is an error: everything else would tell of one in which no supervisor runs.
func (p *program) socket() (path, home string, err error) {
	home, err = p.resolvedHome()
	if err != nil {
		return "", "", err
	}
	if path, err = config.FindSocket(p.runDir, home); err != nil {
		return "", "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, home, nil
	}
	return path, home, p.foreign(home)
}

// connected runs f over a connection to the running supervisor. None is an error that says how to start one.
func (p *program) connected(ctx context.Context, f func(grpc.ClientConnInterface) error) error {
	path, home, err := p.socket()
	if err != nil {
		return err
	}
	if err := answers(ctx, path); err != nil {
		return p.noSupervisor(home, path, err)
	}
	conn, err := dial(path)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	silent := p.listenFor(ctx, conn)
	err = f(conn)
	if waited := silent(); waited > 0 {
		err = fmt.Errorf("no sign of life for %s: the call %w", waited.Round(time.Second/10), ipc.ErrTimeout)
	}
	return explain(err, home)
}

// explain says what a failed call means for a person, where the error alone does not.
func explain(err error, home string) error {
	switch {
	case errors.Is(err, ipc.ErrTimeout):
		return fmt.Errorf("%w\nthe supervisor of home %s is there but did not answer in time: it may be frozen, or this machine too busy; try again, then look into its log", err, home)
	case errors.Is(err, ipc.ErrGone):
		return ipc.WithKind(fmt.Errorf("the supervisor of home %s ended during the call; try again", home), ipc.ErrGone)
	}
	return err
}

// dial returns a connection to a control socket; it connects when it is used.
func dial(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+path, append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// connectTimeout bounds the connect to a socket of this machine, which is at once or, with a full backlog, never.
const connectTimeout = 2 * time.Second

// answers connects once, so that a supervisor that is not there is told from one that fails.
func answers(ctx context.Context, path string) error {
	dialer := net.Dialer{Timeout: connectTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

// noSupervisor says in words for a person why the socket does not answer.
func (p *program) noSupervisor(home, path string, err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return ipc.WithKind(fmt.Errorf("no supervisor runs for home %s\nstart it with: %s", home, p.startLine()), ipc.ErrGone)
	}
	if errors.Is(err, os.ErrPermission) {
		owner, _ := ownerAbove(path)
		return ipc.WithKind(fmt.Errorf("the supervisor of home %s belongs to %s, and its control socket %s is closed to %s\nask as its owner: %s",
			home, called(owner), path, called(os.Geteuid()), p.asOwner(owner, home)), ipc.ErrDenied)
	}
	return ipc.WithKind(fmt.Errorf("control socket %s: %w", path, err), ipc.ErrGone)
}

// startLine is the command that starts the supervisor that this call looked for.
func (p *program) startLine() string {
	line := "hermes-supervisor run"
	if p.home != "" {
		line += " --home " + shellWord(p.home)
	}
	if p.runDir != "" {
		line += " --run-dir " + shellWord(p.runDir)
	}
	return line
}
