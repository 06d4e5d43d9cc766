package ipc

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// deadlines holds the longest time a unary call may take. gRPC and go-plugin set none of their own, so a frozen
// peer would hold its caller for ever. A caller's shorter deadline wins.
var deadlines = map[string]time.Duration{
	// A worker's own start: an adapter may look up its account first.
	"/hermes.worker.v1.Worker/Init": 10 * time.Second,
	// Three missed in a row make a worker frozen, so this bounds how long that takes to find.
	"/hermes.worker.v1.Worker/Health": time.Second,
	// The caller passes the drain budget; this is only the ceiling.
	"/hermes.worker.v1.Worker/Drain": 10 * time.Minute,
	"/hermes.worker.v1.Worker/Stats": time.Second,
	// Half a minute of processor time is measured at most.
	"/hermes.worker.v1.Profiler/Profile": 40 * time.Second,

	"/hermes.agent.v1.Agent/Interrupt": 5 * time.Second,

	"/hermes.tool.v1.Tool/Describe": 5 * time.Second,
	"/hermes.tool.v1.Tool/Check":    5 * time.Second,

	// One platform request with its retries inside the adapter; a row whose call runs into this is unknown.
	"/hermes.adapter.v1.Adapter/Deliver": 30 * time.Second,
	"/hermes.adapter.v1.Adapter/Status":  time.Second,

	"/hermes.kanban.v1.Kanban/Tick": 30 * time.Second,

	// Store calls wait for a group commit; a foreign process may hold the write lock for 20 s (a VACUUM).
	"/hermes.host.v1.Inbox/Accept":      30 * time.Second,
	"/hermes.host.v1.Turns/Append":      30 * time.Second,
	"/hermes.host.v1.Turns/Finish":      30 * time.Second,
	"/hermes.host.v1.Turns/Interrupt":   10 * time.Second,
	"/hermes.host.v1.Turns/Decide":      30 * time.Second,
	"/hermes.host.v1.Turns/ListOpen":    10 * time.Second,
	"/hermes.host.v1.Turns/Retry":       30 * time.Second,
	"/hermes.host.v1.Turns/Steer":       30 * time.Second,
	"/hermes.host.v1.Sessions/Get":      10 * time.Second,
	"/hermes.host.v1.Sessions/List":     10 * time.Second,
	"/hermes.host.v1.Sessions/SetTitle": 30 * time.Second,
	"/hermes.host.v1.Sessions/Bind":     30 * time.Second,
	"/hermes.host.v1.Sessions/SetModel": 30 * time.Second,
	"/hermes.host.v1.Sessions/Undo":     30 * time.Second,
	"/hermes.host.v1.Sessions/End":      30 * time.Second,

	"/hermes.host.v1.Confirmations/Ask":    30 * time.Second,
	"/hermes.host.v1.Confirmations/Answer": 30 * time.Second,
	"/hermes.host.v1.Confirmations/Get":    10 * time.Second,
	"/hermes.host.v1.Confirmations/List":   10 * time.Second,
	"/hermes.host.v1.Confirmations/Done":   30 * time.Second,

	// Small files of the home.
	"/hermes.host.v1.Pairing/Check":   10 * time.Second,
	"/hermes.host.v1.Pairing/Request": 10 * time.Second,

	"/hermes.host.v1.Lifecycle/Restart": 30 * time.Second,

	"/hermes.host.v1.Tools/List":        5 * time.Second,
	"/hermes.host.v1.Boards/CreateTask": 30 * time.Second,
	"/hermes.host.v1.Boards/ListTasks":  10 * time.Second,
	"/hermes.host.v1.Boards/GetTask":    10 * time.Second,
	"/hermes.host.v1.Boards/SetStatus":  30 * time.Second,
	"/hermes.host.v1.Boards/Subscribe":  30 * time.Second,
	"/hermes.host.v1.Boards/Unseen":     10 * time.Second,
	"/hermes.host.v1.Boards/Notify":     30 * time.Second,
	// A read of the store lives 5 s at most.
	"/hermes.host.v1.Search/Discover": 15 * time.Second,
	"/hermes.host.v1.Search/Scroll":   10 * time.Second,
	"/hermes.host.v1.Search/Read":     10 * time.Second,
	"/hermes.host.v1.Search/Browse":   10 * time.Second,
	"/hermes.host.v1.Events/Publish":  5 * time.Second,
	"/hermes.host.v1.Config/Secret":   5 * time.Second,

	"/hermes.control.v1.Control/Status": 5 * time.Second,
	// Whole files are read: 100 to 200 MiB/s on a quiet machine, and homes of 10 GiB exist.
	"/hermes.control.v1.Maintenance/Copy":      20 * time.Minute,
	"/hermes.control.v1.Maintenance/Check":     20 * time.Minute,
	"/hermes.control.v1.Maintenance/Optimize":  20 * time.Minute,
	"/hermes.control.v1.Maintenance/Mend":      20 * time.Minute,
	"/hermes.control.v1.BoardStatistics/Count": 10 * time.Second,
	// Drain, stop ladder and start of one worker.
	"/hermes.control.v1.Control/RestartWorker": 3 * time.Minute,
	"/hermes.control.v1.Control/StopWorker":    3 * time.Minute,
	"/hermes.control.v1.Control/StartWorker":   time.Minute,
	"/hermes.control.v1.Control/Shutdown":      5 * time.Second,
	"/hermes.control.v1.Control/Fds":           5 * time.Second,
	"/hermes.control.v1.Pairing/List":          10 * time.Second,
	"/hermes.control.v1.Pairing/Approve":       10 * time.Second,
	"/hermes.control.v1.Pairing/Revoke":        10 * time.Second,
	"/hermes.control.v1.Pairing/ClearPending":  10 * time.Second,
	"/hermes.control.v1.Plugins/ListPlugins":   5 * time.Second,
	// A program is hashed and the lock file written; a removal also drains.
	"/hermes.control.v1.Plugins/AddPlugin":     time.Minute,
	"/hermes.control.v1.Plugins/RemovePlugin":  3 * time.Minute,
	"/hermes.control.v1.Plugins/EnablePlugin":  time.Minute,
	"/hermes.control.v1.Plugins/DisablePlugin": 3 * time.Minute,

	"/hermes.control.v1.Sessions/List":   15 * time.Second,
	"/hermes.control.v1.Sessions/Show":   15 * time.Second,
	"/hermes.control.v1.Sessions/Search": 15 * time.Second,
	"/hermes.control.v1.Sessions/Select": 15 * time.Second,
	"/hermes.control.v1.Sessions/Rename": 30 * time.Second,
	// In short reads, but of every session: 150,000 with their prompts are 4 GiB.
	"/hermes.control.v1.Sessions/Stats": 10 * time.Minute,
	// A transaction a session, and there may be thousands.
	"/hermes.control.v1.Sessions/Archive": 10 * time.Minute,
	"/hermes.control.v1.Sessions/Delete":  10 * time.Minute,
	"/hermes.control.v1.Sessions/Prune":   10 * time.Minute,
	"/hermes.control.v1.Chat/Send":        30 * time.Second,
	"/hermes.control.v1.Chat/Interrupt":   10 * time.Second,
	"/hermes.control.v1.Chat/Decide":      30 * time.Second,
	"/hermes.control.v1.Chat/Acknowledge": 30 * time.Second,
	"/hermes.control.v1.Timeline/Tell":    10 * time.Second,

	"/hermes.control.v1.Operations/Series": 5 * time.Second,
	"/hermes.control.v1.Operations/Drain":  5 * time.Second,
	// The longest profile of a worker, and the way there.
	"/hermes.control.v1.Operations/Profile": 45 * time.Second,
	"/hermes.control.v1.Operations/Ping":    time.Second,
	"/hermes.control.v1.Operations/Resume":  5 * time.Second,
	// Agents are replaced one after the other, each after its turns.
	"/hermes.control.v1.Operations/Reload": 15 * time.Minute,
}

// streams names the streaming methods. They have no total deadline; what bounds each instead is said here.
var streams = map[string]string{
	"/hermes.agent.v1.Agent/Run":             "the turn queue ends a run that sends no event for a minute",
	"/hermes.tool.v1.Tool/Invoke":            "the supervisor sets the tool's own maximum as deadline",
	"/hermes.adapter.v1.Adapter/Show":        "ended with the adapter; deltas are dropped when it is slow",
	"/hermes.host.v1.Turns/Load":             "ended by its last row; rows come from a bounded read",
	"/hermes.host.v1.Turns/Follow":           "ended by the turn's final event or the follower",
	"/hermes.host.v1.Tools/Call":             "bounded by the tool's deadline and the approval's",
	"/hermes.control.v1.Control/Logs":        "ended by the reader",
	"/hermes.control.v1.Control/Events":      "ended by the reader",
	"/hermes.control.v1.Sessions/Export":     "ended by its last session; each is a bounded read",
	"/hermes.control.v1.Maintenance/Convert": "ended by the whole index; the reader may leave before",
	"/hermes.control.v1.Sessions/Import":     "ended by the sender; each session is a bounded write",
	"/hermes.control.v1.Chat/Follow":         "ended by the turn's final event or the follower",
	"/hermes.control.v1.Chat/Notices":        "ended by the terminal",
	"/grpc.health.v1.Health/Watch":           "go-plugin's own",
	"/plugin.GRPCBroker/StartStream":         "go-plugin's own, for the life of the worker",
	"/plugin.GRPCStdio/StreamStdio":          "go-plugin's own, for the life of the worker",
	"/grpc.reflection.v1.ServerReflection":   "go-plugin's own",
}

// Deadline returns the ceiling of a unary method; ok is false for a method that is not in the table.
func Deadline(method string) (d time.Duration, ok bool) {
	d, ok = deadlines[method]
	return d, ok
}

// fallbackDeadline bounds unary calls of services that are not ours (go-plugin's health check and controller).
const fallbackDeadline = 5 * time.Second

func withDeadline(ctx context.Context, method string) (context.Context, context.CancelFunc) {
	d, ok := deadlines[method]
	if !ok {
		d = fallbackDeadline
	}
	return context.WithTimeout(ctx, d)
}

func deadlineUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := withDeadline(ctx, method)
	defer cancel()
	return FromStatus(method, invoke(ctx, method, req, reply, cc, opts...))
}
