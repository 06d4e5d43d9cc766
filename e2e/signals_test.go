package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A unit with KillMode=control-group, or a person with a list of pids, ends everybody in one moment.
func TestASIGTERMForEverybodyAtOnceLosesNothing(t *testing.T) {
	s := newSystem(t, "supervisor: {drain_timeout: 5s}")
	s.start()
	ctx, client := s.session()
	sent := s.send(ctx, client, "m-1", "wait: 8")
	s.runningAgent()
	below := descendants(s.pid())
	for _, p := range below {
		_ = syscall.Kill(p.pid, syscall.SIGTERM)
	}
	if code, took := s.stop(); code != 0 || took > 30*time.Second {
		t.Errorf("ended with %d after %v", code, took)
	}
	if left := ours(bin); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	s.start()
	ctx, client = s.session()
	final, err := follow(ctx, client, sent.TurnId, nil)
	if err != nil || final.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
		t.Errorf("%v, %v", final, err)
	}
}

func TestAfterTenKillsAndStartsThereIsOneSetOfWorkers(t *testing.T) {
	s := newSystem(t, quickRestarts)
	for range 10 {
		s.start()
		s.kill()
	}
	s.start()
	s.eventually(limit, "one process a worker", func() error {
		st, err := s.status()
		if err != nil {
			return err
		}
		want := 1
		for _, w := range st.Workers {
			if w.Pid != 0 {
				want++
			}
		}
		if have := ours(bin); len(have) != want {
			return fmt.Errorf("%d processes, want %d: %v", len(have), want, have)
		}
		return nil
	})
}

// Adapters that connect, fail and try again must not be in the way of an end.
func TestAStopDuringTheStartOfAdaptersIsOrderly(t *testing.T) {
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		s := newSystem(t, "  telegram: {base_url: \"http://127.0.0.1:9\", allowed_users: \"1\", retry_first: 10ms}\nsupervisor: {drain_timeout: 2s}")
		if err := os.WriteFile(s.home+"/.env", []byte("TELEGRAM_BOT_TOKEN=1:abcdefghijklmnopqrstuvwxyz0123456789\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.spawn()
		s.eventually(limit, "the control socket is there", func() error {
			_, err := os.Stat(s.socket())
			return err
		})
		time.Sleep(after)
		if code, took := s.stop(); code != 0 || took > 20*time.Second {
			t.Errorf("%v after its start it ended with %d after %v:\n%s", after, code, took, s.out.String())
		}
		if left := ours(bin); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// Under a service manager a home that somebody else has is nothing to be tried again and again: the unit is told so by the code.
func TestASecondServiceOfAHomeEndsWithTheCodeThatIsNotTriedAgain(t *testing.T) {
	s := newSystem(t, "")
	s.start()
	for script, want := range map[string]int{`exec "$0" "$@"`: ipc.ExitTryAgain, `SYSTEMD_EXEC_PID=$$ exec "$0" "$@"`: ipc.ExitConfig} {
		cmd := exec.Command("/bin/sh", append([]string{"-c", script, bin + "/hermes-supervisor"}, s.args("run")...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home}
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(out), fmt.Sprint(s.pid())) {
			t.Errorf("%s: %d, want %d: %s", script, code, want, out)
		}
	}
}
