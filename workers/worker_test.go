package workers

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A slowRole is still starting when the worker is to end.
type slowRole struct {
	t       *testing.T
	started chan struct{}
	closed  chan struct{}
	made    []string // by Start, given back by Close
}

func (r *slowRole) Register(*grpc.Server)     {}
func (r *slowRole) Drain(context.Context) int { return 0 }

func (r *slowRole) Start(ctx context.Context, _ *Host, _ json.RawMessage) error {
	close(r.started)
	<-ctx.Done()
	select {
	case <-r.closed:
		r.t.Error("it is closed while it starts")
	case <-time.After(20 * time.Millisecond):
	}
	r.made = append(r.made, "something")
	return ctx.Err()
}

func (r *slowRole) Close() {
	if len(r.made) != 1 {
		r.t.Errorf("it has %v to give back", r.made)
	}
	close(r.closed)
}

func TestAWorkerThatIsEndedWhileItStartsGivesBackWhatItTook(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fds[1]) }()
	t.Setenv(ipc.HostFDEnv, strconv.Itoa(fds[0])) // Init closes it
	ctx, cancel := context.WithCancel(t.Context())
	role := &slowRole{t: t, started: make(chan struct{}), closed: make(chan struct{})}
	w := &worker{ctx: ctx, role: role, roleName: "slow", log: hclog.NewNullLogger(), cutOff: func() {}}
	ended := make(chan error, 1)
	go func() {
		_, err := w.Init(ctx, &workerv1.InitRequest{Name: "slow", SupervisorVersion: ipc.Version()})
		ended <- err
	}()
	<-role.started
	cancel()
	w.closeRole()
	if err := <-ended; err == nil {
		t.Error("the start went well")
	}
	<-role.closed
}

// A server does not wait for ever for who has connected to begin: an agent that has no turn for minutes would lose the host with
// its first one.
func TestAWorkerGreetsItsHostBeforeItNeedsIt(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(ipc.HostFDEnv, strconv.Itoa(fds[0]))
	host := os.NewFile(uintptr(fds[1]), "host")
	defer host.Close()
	conn, err := (&worker{cutOff: func() {}}).dialHost(0) // closes the other end
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	timeout := unix.NsecToTimeval((10 * time.Second).Nanoseconds())
	if err := unix.SetsockoptTimeval(fds[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	const preface = "PRI * HTTP/2.0"
	got := make([]byte, len(preface))
	if _, err := io.ReadFull(host, got); err != nil || string(got) != preface {
		t.Errorf("the host hears %q, %v", got, err)
	}
}
