package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// libexecWith returns a folder with the worker binaries under test, but for one role a worker with a fault.
func libexecWith(t *testing.T, role, fault string) string {
	t.Helper()
	dir := t.TempDir()
	all, err := filepath.Glob(filepath.Join(bin, "hermes-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if name := filepath.Base(path); name != "hermes-"+role {
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	faulty := filepath.Join(dir, "hermes-"+role)
	version, err := exec.Command(filepath.Join(bin, "hermes-"+role), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(version))
	flag := "-X github.com/hermes-supervisor/hermes-supervisor/ipc.version=" + f[len(f)-1]
	out, err := exec.Command("go", "build", "-ldflags", flag, "-o", faulty, "../supervisor/worker/testworker").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(faulty+".fault", []byte(fault), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// stories are what `ctl timeline -o json` prints.
type stories struct {
	Stories []struct {
		Kind, Worker, Cause, Message, Next string
		Fields                             map[string]string
		At                                 float64
		Turns                              []struct {
			TurnID    string `json:"turn_id"`
			ResumedBy string `json:"resumed_by"`
			Outcome   string
		}
	}
}

func (s *system) timeline() stories {
	s.t.Helper()
	out, errOut, code := s.command(nil, "ctl", "timeline", "--since", "0", "-o", "json")
	if code != 0 {
		s.t.Fatalf("exit %d: %s", code, errOut)
	}
	var told stories
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		s.t.Fatal(err)
	}
	return told
}

func TestALeakingWorkerIsReplacedWhileATurnRunsElsewhere(t *testing.T) {
	libexec := libexecWith(t, "kanban", "leak-fds 50")
	s := newSystem(t, fmt.Sprintf("supervisor: {libexec: %q, workers: {kanban: {fds: 256}}}", libexec))
	s.start()
	ctx, client := s.session()
	leaking := s.worker("kanban")
	sent := s.send(ctx, client, "m-1", "wait: 12")
	agent := s.runningAgent()
	s.eventually(limit, "the leaking worker is replaced", func() error {
		if w := s.worker("kanban"); w.Restarts == 0 {
			return fmt.Errorf("%d of %d descriptors", w.Fds, w.FdLimit)
		}
		return nil
	})
	final, err := follow(ctx, client, sent.TurnId, nil)
	if err != nil || final.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
		t.Errorf("the turn of another worker: %v, %v", final, err)
	}
	if w := s.worker(agent.Name); w.Pid != agent.Pid {
		t.Errorf("the agent was replaced as well: %v", w.LastExit)
	}
	var recycled, died bool
	for _, story := range s.timeline().Stories {
		switch {
		case story.Kind == "recycling" && story.Worker == "kanban":
			recycled = true
			if _, err := os.Stat(filepath.Join(story.Fields["evidence"], "handles.txt")); err != nil || !strings.Contains(story.Fields["top_handles"], "/dev/null") {
				t.Errorf("evidence: %v, %v", story.Fields, err)
			}
		case story.Kind == "death" && story.Worker == "kanban":
			died = true
			if story.Cause != "planned" {
				t.Errorf("it died: %+v", story)
			}
		}
	}
	if !recycled || !died || strings.Contains(s.out.String(), "out of descriptors") {
		t.Errorf("recycled %v, died %v (process %d)", recycled, died, leaking.Pid)
	}
}

func TestATakenPortIsSaidAtOnceAndNotTriedAllTheTime(t *testing.T) {
	s := newSystem(t, "")
	taken, err := net.Listen("tcp", s.api)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s.start()
	s.eventually(limit, "the gateway says why", func() error {
		if w := s.worker("gateway-api"); w.State != "failed" || !strings.Contains(w.Detail, "address already in use") {
			return fmt.Errorf("%s: %s", w.State, w.Detail)
		}
		return nil
	})
	if w := s.worker("gateway-api"); w.Restarts > 0 || w.NextStartSeconds < 30 || strings.Contains(w.Detail, "refused in this state") {
		t.Errorf("%v", w)
	}
}

// The night of the field: the client of a turn crashes, the service is restarted, and restarted once more while the turn is
// tried again. There the bot was silent for twelve minutes.
func TestACrashAndTwoRestartsLoseNoTurnAndAreToldInFewLines(t *testing.T) {
	s := newSystem(t, "supervisor: {drain_timeout: 0}")
	s.start()
	ctx, client := s.session()
	sent := s.send(ctx, client, "m-1", "wait: 20")
	holder := s.runningAgent()
	if err := syscall.Kill(int(holder.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.eventually(limit, "the death is noticed", func() error {
		if w := s.worker(holder.Name); w.Restarts == 0 || w.State != "ready" {
			return fmt.Errorf("%s", w.State)
		}
		return nil
	})
	for range 2 {
		s.eventually(limit, "the turn runs again", func() error {
			st, err := s.status()
			if err != nil {
				return err
			}
			if st.Turns.GetRunning() != 1 {
				return fmt.Errorf("%v", st.Turns)
			}
			return nil
		})
		if code, _ := s.stop(); code != 0 {
			t.Fatalf("stopped with %d", code)
		}
		s.start()
	}
	ctx, client = s.session()
	final, err := follow(ctx, client, sent.TurnId, nil)
	if err != nil || final.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
		t.Fatalf("the turn was lost: %v, %v", final, err)
	}
	cut := 0
	for _, story := range s.timeline().Stories {
		for _, held := range story.Turns {
			if held.TurnID == sent.TurnId && held.Outcome == "completed" && held.ResumedBy != "" {
				cut++
			}
		}
	}
	text, _, _ := s.command(nil, "ctl", "timeline", "--since", "1h")
	t.Logf("the night:\n%s", text)
	if strings.Count(text, "supervisor stopping: terminated signal received; draining") != 2 {
		t.Error("who stopped the supervisor is not told")
	}
	if lines := strings.Count(text, "\n"); cut != 3 || lines >= 20 {
		t.Errorf("cut %d times in %d lines:\n%s", cut, lines, text)
	}
	var st *controlv1.StatusResponse
	if st, err = s.status(); err != nil || st.Turns.GetParked() != 0 {
		t.Errorf("%v, %v", st.GetTurns(), err)
	}
}
