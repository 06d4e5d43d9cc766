package control

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// peerCredentials is a "handshake" that asks the kernel who connected. File modes already keep others out; this
// holds when somebody loosened them.
type peerCredentials struct {
	uid    int
	refuse func(pid int) error // nil: nobody of this user
}

var errForeignPeer = errors.New("control socket: peer is another user")

func (c peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("control socket: %T is not a unix socket", conn)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	if credErr != nil {
		return nil, nil, fmt.Errorf("control socket: peer credentials: %w", credErr)
	}
	if !admits(c.uid, int(cred.Uid)) {
		return nil, nil, fmt.Errorf("%w (uid %d, pid %d)", errForeignPeer, cred.Uid, cred.Pid)
	}
	if c.refuse != nil {
		if err := c.refuse(int(cred.Pid)); err != nil {
			return nil, nil, fmt.Errorf("control socket: %w", err)
		}
	}
	return conn, peerInfo{uid: int(cred.Uid), pid: int(cred.Pid)}, nil
}

// admits says who may connect: the supervisor's own user, and root, who could anyway.
func admits(own, peer int) bool { return peer == own || peer == 0 }

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peercred"}
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func (peerCredentials) OverrideServerName(string) error { return nil }

type peerInfo struct{ uid, pid int }

func (peerInfo) AuthType() string { return "unix-peercred" }

// operator identifies every caller of the control socket.
func operator(ctx context.Context) (ipc.Identity, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ipc.Identity{}, fmt.Errorf("control socket: no peer: %w", ipc.ErrDenied)
	}
	info, ok := p.AuthInfo.(peerInfo)
	if !ok {
		return ipc.Identity{}, fmt.Errorf("control socket: peer without credentials: %w", ipc.ErrDenied)
	}
	return ipc.Identity{Worker: fmt.Sprintf("operator (pid %d)", info.pid), Role: ipc.RoleOperator, Platform: PlatformTerminal}, nil
}

// PlatformTerminal is the platform of chats over the control socket.
const PlatformTerminal = "terminal"
