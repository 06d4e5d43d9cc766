package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

var _ body = (*instance)(nil)

func (i *instance) id() int                { return i.process.id() }
func (i *instance) done() <-chan struct{}  { return i.process.done }
func (i *instance) reaped() bool           { return i.process.isReaped() }
func (i *instance) series() *sample.Series { return i.process.series }
func (i *instance) began() time.Time       { return i.process.started }

// identify gives each call of the worker its identity. A call that is still on its way when the process is gone has
// nobody behind it.
func (i *instance) identify(context.Context) (ipc.Identity, error) {
	select {
	case <-i.process.done:
		return ipc.Identity{}, fmt.Errorf("worker %s: %w", i.identity.Worker, ipc.ErrGone)
	default:
		return i.identity, nil
	}
}

func (i *instance) panicked(method string, value any, stack []byte) {
	i.log.Error("panic in a call of a worker", "method", method, "panic", fmt.Sprint(value), "stack", string(stack))
}

func (i *instance) up(h Hooks) (down func()) {
	if h.Up == nil {
		return func() {}
	}
	if down = h.Up(i.identity, i.peer.Conn); down == nil {
		return func() {}
	}
	return down
}

func (i *instance) leaving(h Hooks) {
	if h.Leaving != nil {
		h.Leaving(i.identity)
	}
}

func (i *instance) drain(ctx context.Context, reason string) (int, error) {
	r, err := workerv1.NewWorkerClient(i.peer.Conn).Drain(ctx, &workerv1.DrainRequest{Reason: reason})
	if err != nil {
		return 0, err
	}
	return int(r.Unfinished), nil
}

func (i *instance) health(ctx context.Context) (health, error) {
	r, err := workerv1.NewWorkerClient(i.peer.Conn).Health(ctx, &workerv1.HealthRequest{})
	if err != nil {
		return health{}, err
	}
	return health{progress: r.Progress, inFlight: r.InFlight, detail: r.Detail}, nil
}

// end climbs the stop ladder. SIGTERM goes to the group, as a tool's children may as well end in their own way. SIGQUIT
// goes to the worker alone, whose stacks are wanted, with SIGCONT behind it, without which a stopped process hears nothing.
// SIGKILL goes to the group again.
func (i *instance) end(from action) {
	if p := i.process; p.spec.CgroupEnv != "" && p.group == nil && p.series != nil {
		p.series.LookBelow() // what has wiped its environment is known by having been below it alone
	}
	if from == doTerm {
		i.process.signal(syscall.SIGTERM)
		if i.endsWithin(i.timing.Term) {
			return
		}
	}
	if from != doKill {
		i.process.signalLeader(syscall.SIGQUIT, syscall.SIGCONT)
		if i.endsWithin(i.timing.Quit) {
			return
		}
	}
	i.process.signal(syscall.SIGKILL)
	if !i.endsWithin(i.timing.Kill) {
		i.log.Error("a process is not over", "pid", i.id(), "detail", i.unended().Message)
	}
}

func (i *instance) endsWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-i.process.done:
		return true
	case <-t.C:
		return false
	}
}

// overWithin waits until there is no process and there will be none.
func (i *instance) overWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	return i.over(t.C)
}

// over is overWithin with a limit that may never come. A start that was broken off may still be making a process, which then
// dies at once.
func (i *instance) over(limit <-chan time.Time) bool {
	if i.connected == nil {
		return true // nothing was begun
	}
	select {
	case <-i.process.done:
		return true
	case <-limit:
		return false
	case <-i.connected:
	}
	if i.id() == 0 {
		return true
	}
	select {
	case <-i.process.done:
		return true
	case <-limit:
		return false
	}
}

// isOver says whether there is no process and will be none.
func (i *instance) isOver() bool {
	if i.connected == nil {
		return true
	}
	select {
	case <-i.process.done:
		return true
	default:
	}
	select {
	case <-i.connected:
		return i.id() == 0
	default:
		return false
	}
}

// limitKills returns how many processes below the worker the kernel has ended for its limit of memory.
func (i *instance) limitKills() uint64 { return i.process.group.kills() }

// tidy lets go of all that belonged to the process, which is gone or was never there. One that is slow to end has been waited
// for. It is left to a goroutine of its own, which ends with it: nothing of it is kept for longer.
func (i *instance) tidy() {
	if i.isOver() {
		i.clear()
		return
	}
	i.log.Error("a process that does not end keeps its connection until it does", "pid", i.id())
	go func() {
		i.over(nil)
		i.clear()
	}()
}

// clear is tidy for a process that is over. go-plugin's own clean-up has a watch on it: it waits without limit for a process
// that will not end.
func (i *instance) clear() {
	i.process.group.remove() // made for a process that never came
	i.mu.Lock()
	server := i.server
	i.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	if conn := i.process.takeHost(); conn != nil { // it was never served
		_ = conn.Close()
	}
	if i.client != nil && !i.letGo() {
		i.log.Error("go-plugin does not let go of a process; its goroutines are lost", "pid", i.id())
	}
	i.mu.Lock()
	conn := i.conn
	i.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // closed already, as a rule
	}
	if i.process.socketDir != "" {
		if err := os.RemoveAll(i.process.socketDir); err != nil {
			i.log.Warn("cannot remove the socket folder of a process", "error", err)
		}
	}
}

// letGo makes go-plugin end its side and says whether it did.
func (i *instance) letGo() bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-i.connected
		// Kill dials once more if it has no connection. There is nothing to be reached.
		i.config.GRPCDialOptions = append(i.config.GRPCDialOptions, grpc.WithTimeout(time.Millisecond)) //nolint:staticcheck // as in dialOptions
		i.client.Kill()
	}()
	t := time.NewTimer(i.timing.Dial + i.timing.Tidy)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

const (
	// linesInExit are kept with an exit, and bytesInExit of them: enough for a panic with the top of its trace.
	linesInExit = 30
	bytesInExit = 4 << 10
)

// exit says how the process ended. It is called when it is gone.
func (i *instance) exit() Exit {
	p := i.process
	e := Exit{PID: p.id(), sent: p.signals()}
	if e.PID == 0 {
		return e
	}
	e.Uptime = time.Since(p.started)
	e.memory = p.spec.Limits.Memory
	select {
	case <-p.done:
		e.Strays = p.strays
		e.setState(p.state)
	default:
		e.Code = -1 // it has not ended
	}
	if p.series != nil {
		e.Last, e.FDLimit = p.series.Last(), p.series.FDLimit()
		e.Before = lastReadings(p.series.Seconds(61))
	}
	if p.source != nil {
		e.lastWords = p.source.LastWords()
		e.Lines = lastLines(p.source.Tail(linesInExit))
	}
	select {
	case <-p.done:
		e.atLimit, e.Peak = p.limitKills > 0, p.peak
	default:
	}
	e.oom = p.sampler.Proc().OOMKills() > i.oomKills
	return e
}

// lastLines returns the texts of lines, the newest that fit.
func lastLines(lines []logs.Line) []string {
	var out []string
	size := 0
	for _, l := range slices.Backward(lines) {
		text := l.Message
		for _, f := range l.Fields {
			if f.Key == "error" {
				text += ": " + f.Value
			}
		}
		if size += len(text); size > bytesInExit && len(out) > 0 {
			break
		}
		out = append(out, text[:min(len(text), bytesInExit)])
	}
	slices.Reverse(out)
	return out
}

// NeedsPlain is in the error of a start that would go well with Spec.Plain.
const NeedsPlain = "a plugin in another language than Go needs plain: true"

// explain turns the error of a failed start into one for the person who can mend it.
func (i *instance) explain(err error) error {
	p := i.process
	line, none := p.handshake.given()
	switch {
	case i.id() == 0:
		if spawnHopeless(err) {
			return fmt.Errorf("%w (%w)", err, errHopeless)
		}
		return err
	case i.met(), errors.Is(err, errAborted), errors.Is(err, errSocket):
		return err
	case errors.Is(none, errStdoutClosed):
		return none
	case line == "":
		if none != nil && len(p.signals()) > 0 {
			// It did not end by itself: either it talked too much, or it said nothing in time.
			if strings.HasPrefix(none.Error(), "no handshake in") {
				return fmt.Errorf("%w: it is no worker", none)
			}
			return fmt.Errorf("it printed no handshake: %w", err)
		}
		return i.endedEarly(none)
	case errors.Is(err, plugin.ErrGRPCBrokerMuxNotSupported):
		return fmt.Errorf("it does not support multiplexing; %s (%w)", NeedsPlain, errHopeless)
	}
	parts := strings.Split(line, "|")
	if v, e := strconv.Atoi(parts[1]); e == nil {
		if spoken := ipc.Versions(nil); spoken[v] == nil {
			mend := "install both from one build"
			if p.spec.Role == ipc.RolePlugin {
				mend = "build it with an SDK for that version, or install a supervisor that speaks the plugin's"
			}
			return fmt.Errorf("it speaks worker protocol %d, this supervisor speaks %d: %s (%w)", v, ipc.ProtocolVersion, mend, errHopeless)
		}
	}
	if !i.process.spec.Plain && (len(parts) < 6 || parts[5] == "") {
		return fmt.Errorf("it names no certificate in its handshake; %s (%w)", NeedsPlain, errHopeless)
	}
	return err
}

// met says whether there was a connection.
func (i *instance) met() bool {
	select {
	case <-i.connected:
		return i.peer != nil
	default:
		return false
	}
}

func (i *instance) endedEarly(none error) error {
	if none == nil || i.process.state == nil {
		return errors.New("it ended before its handshake")
	}
	var e Exit
	e.setState(i.process.state)
	return fmt.Errorf("%w: %s", none, e.how())
}
