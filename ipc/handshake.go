// Package ipc is everything that crosses a process boundary: the protocol definitions and their generated code
// (proto/), the handshake, who may call what, how long a call may take, and how errors travel.
//
// Rules: every call has a deadline, set by interceptor from one table; the connection is the identity of the
// caller; workers never talk to each other, only to the supervisor. Nothing here knows what a turn or a board is.
package ipc

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Handshake keeps other programs from being started as workers and the other way round. It is no secret.
// The values never change: a change would make every existing plugin "not a plugin".
var Handshake = plugin.HandshakeConfig{
	MagicCookieKey:   "HERMES_SUPERVISOR_WORKER",
	MagicCookieValue: "b0f3a6c2-9a35-4d0e-8a53-1f3f0a1c7e55",
}

const (
	// ProtocolVersion is the newest worker protocol. A version is the proto package number: hermes.*.v1 is 1.
	ProtocolVersion = 1
	// PluginName is the one name under which a worker is dispensed.
	PluginName = "worker"
	// LivenessFDEnv names the inherited descriptor that reads EOF when the supervisor is gone. A worker that
	// sees EOF there ends within a second, whatever it is doing.
	LivenessFDEnv = "HERMES_LIVENESS_FD"
	// HostFDEnv names the inherited descriptor over which a built-in worker calls the host services: one end of a pair of
	// sockets without a name, whose other end only the supervisor has. A worker that has none dials the broker.
	HostFDEnv = "HERMES_HOST_FD"
	// LastWordsEnv names the file, but for a hyphen and the number of the process, into which a worker writes its last log
	// lines when the supervisor is gone; that of a plugin is below its own folder. The next supervisor reads and removes it.
	LastWordsEnv = "HERMES_LAST_WORDS"
	// MaxMessageBytes bounds one message in both directions. Larger data is streamed. gRPC's own default for
	// received messages is 4 MiB on servers and none on go-plugin's clients, which is too little and too much.
	MaxMessageBytes = 8 << 20
)

// Roles of workers, as used in configuration, logs and the table of who may call what.
const (
	RoleAgent    = "agent"
	RoleTools    = "tools"
	RoleGateway  = "gateway"
	RoleKanban   = "kanban"
	RoleCron     = "cron"
	RolePlugin   = "plugin"
	RoleOperator = "operator" // a person at the control socket, not a worker
)

// A Peer is the supervisor's end of the connection to one worker.
type Peer struct {
	Conn   *grpc.ClientConn
	Broker *plugin.GRPCBroker
	// Gone is done when the connection has ended.
	Gone context.Context
}

// WorkerPlugin joins both ends of a worker connection in go-plugin's terms. On the worker's side Register adds
// the services; on the supervisor's side Dispense returns a *Peer.
type WorkerPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	Register func(*grpc.Server, *plugin.GRPCBroker) error
}

var _ plugin.GRPCPlugin = (*WorkerPlugin)(nil)

// GRPCServer is called in the worker.
func (p *WorkerPlugin) GRPCServer(broker *plugin.GRPCBroker, s *grpc.Server) error {
	return p.Register(s, broker)
}

// GRPCClient is called in the supervisor.
func (p *WorkerPlugin) GRPCClient(ctx context.Context, broker *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &Peer{Conn: conn, Broker: broker, Gone: ctx}, nil
}

// Versions lists the protocol versions that this build speaks, for go-plugin's negotiation. A worker one version
// behind still works once there is a second version; anything else is refused with both versions in the message.
func Versions(register func(*grpc.Server, *plugin.GRPCBroker) error) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{ProtocolVersion: {PluginName: &WorkerPlugin{Register: register}}}
}
