package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// A supervisor that has no descriptor left to open anything goes on: what it needs to take a message and to store its
// answer is open from the start. Whoever fills its table here opens connections to the control socket that say nothing.
func TestASupervisorWithoutFreeDescriptorsGoesOnAnswering(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	before, err := s.status()
	if err != nil {
		t.Fatal(err)
	}
	ctx, client := s.session() // made while there is room, as a gateway's is
	ask := func(n int) {
		t.Helper()
		sent := s.send(ctx, client, fmt.Sprint("m-", n), fmt.Sprintf("question %d", n))
		final, err := follow(ctx, client, sent.TurnId, nil)
		if err != nil || final.Outcome.String() != "OUTCOME_COMPLETED" {
			t.Errorf("question %d: %v, %v", n, final, err)
		}
	}
	ask(0)
	// A few more than are open now: as many as a tiny ulimit -n would have left.
	most := uint64(before.Supervisor.Fds) + 8
	if err := unix.Prlimit(s.pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
		t.Fatal(err)
	}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	full := func() bool {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid()))
		return err == nil && uint64(len(list)) >= most
	}
	s.eventually(limit, "the table is full", func() error {
		c, err := net.Dial("unix", s.socket())
		if err != nil {
			return err
		}
		if held = append(held, c); !full() {
			return errors.New("there is room")
		}
		return nil
	})
	for n := 1; n <= 20; n++ {
		ask(n)
		if !full() {
			t.Fatal("the table is not full any more: this shows nothing")
		}
	}
	for _, c := range held {
		_ = c.Close()
	}
	held = nil
	s.eventually(limit, "the status of an ordinary supervisor", func() error {
		st, err := s.status()
		if err != nil {
			return err
		}
		for _, x := range st.Stores {
			if x.State != "ok" && x.Condition != "disk_low" {
				return fmt.Errorf("store %s is %s: %s", x.Name, x.State, x.Detail)
			}
		}
		return nil
	})
	db := openDatabase(t, filepath.Join(s.home, "state.db"))
	var answered int
	if err := db.QueryRow("SELECT count(*) FROM hs_turns WHERE outcome = 'completed'").Scan(&answered); err != nil || answered != 21 {
		t.Errorf("%d of 21 turns are completed, %v", answered, err)
	}
}

// A login shell or a service manager hands on a soft limit far below the hard one. All that the supervisor starts has more than
// that, it says so, and it warns where the hard limit is below what is configured.
func TestALowSoftLimitIsRaisedAndBothLimitsAreSaid(t *testing.T) {
	s := newSystem(t, "")
	s.low = "ulimit -Sn 256; ulimit -Hn 3000; "
	s.start()
	st, err := s.status()
	if err != nil || st.Supervisor.FdLimit != 3000 {
		t.Errorf("the supervisor may open %d files, %v", st.GetSupervisor().GetFdLimit(), err)
	}
	for _, w := range st.Workers {
		if w.FdLimit < 3000 { // root may give them what is configured
			t.Errorf("%s may open %d files", w.Name, w.FdLimit)
		}
	}
	for _, want := range []string{"limit of open files soft=3000 hard=3000", "below what is configured"} {
		if out := s.out.String(); !strings.Contains(out, want) {
			t.Errorf("the log does not say %q:\n%s", want, out)
		}
	}
}

// Below what it needs it does not start, and says how much that is.
func TestATinyLimitOfDescriptorsIsRefusedWithWhatToDo(t *testing.T) {
	s := newSystem(t, "")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -n 64 && exec "$0" "$@"`, filepath.Join(bin, "hermes-supervisor")}, s.args("run")...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != ipc.ExitConfig || !strings.Contains(string(out), "the limit of open files is 64, at least") {
		t.Errorf("it ended with %v: %s", err, out)
	}
}
