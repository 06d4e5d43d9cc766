package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/plugintest"
)

// limit bounds what a test waits for.
const limit = 60 * time.Second

// send sends a message on a connection of its own and returns its turn.
func (s *system) send(ctx context.Context, client controlv1.ChatClient, id, text string) *controlv1.SendResponse {
	s.t.Helper()
	r, err := client.Send(ctx, &controlv1.SendRequest{ChatId: "fault", MessageId: id, Text: text})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// session returns a chat client and a context for one test.
func (s *system) session() (context.Context, controlv1.ChatClient) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	conn := s.dial()
	s.t.Cleanup(func() { cancel(); _ = conn.Close() })
	return ctx, controlv1.NewChatClient(conn)
}

// runningAgent returns the agent that holds the one running turn.
func (s *system) runningAgent() *controlv1.WorkerStatus {
	s.t.Helper()
	var holder *controlv1.WorkerStatus
	s.eventually(limit, "an agent runs the turn", func() error {
		st, err := s.status()
		if err != nil {
			return err
		}
		for _, w := range st.Workers {
			if w.Role == "agent" && w.InFlight > 0 {
				holder = w
				return nil
			}
		}
		return fmt.Errorf("no agent is busy")
	})
	return holder
}

// waitFile waits until something stands in a file: a shell makes it before it writes.
func (s *system) waitFile(path string) {
	s.t.Helper()
	s.eventually(limit, path+" is written", func() error {
		info, err := os.Stat(path)
		if err == nil && info.Size() == 0 {
			err = errors.New("it is empty")
		}
		return err
	})
}

func TestAnAgentKilledDuringAToolCallDoesNotRunItTwice(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	ctx, client := s.session()
	file := filepath.Join(s.home, "effect")
	sent := s.send(ctx, client, "m-1", fmt.Sprintf("run: echo effect-of-m-1 | tee -a %s; sleep 5; echo ended", file))
	s.waitFile(file)
	agent := s.runningAgent()
	if err := killPID(int(agent.Pid)); err != nil {
		t.Fatal(err)
	}
	attempts := uint32(0)
	final, err := follow(ctx, client, sent.TurnId, func(e *turnv1.TurnEvent) {
		if st := e.GetStarted(); st != nil {
			attempts = max(attempts, st.Attempt)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(file)
	if got := strings.Count(string(b), "effect-of-m-1"); got != 1 {
		t.Errorf("the call ran %d times", got)
	}
	if !strings.Contains(final.Text, "effect-of-m-1") || !strings.Contains(final.Text, "ended") {
		t.Errorf("the result did not reach the resumed turn: %q", final.Text)
	}
	if attempts < 2 {
		t.Errorf("the turn was not resumed: attempt %d", attempts)
	}
}

func TestAToolsWorkerKilledDuringACallLeavesItsEffectUnknown(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	ctx, client := s.session()
	file := filepath.Join(s.home, "effect")
	sent := s.send(ctx, client, "m-1", fmt.Sprintf("run: echo once | tee -a %s; sleep 30", file))
	s.waitFile(file)
	if err := killPID(int(s.worker("tools").Pid)); err != nil {
		t.Fatal(err)
	}
	final, err := follow(ctx, client, sent.TurnId, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(final.Text, effectUnknown) {
		t.Errorf("the person is not told: %q", final.Text)
	}
	if b, _ := os.ReadFile(file); string(b) != "once\n" {
		t.Errorf("effects: %q", b)
	}
}

func TestTheShellChildOfAKilledToolsWorkerEndsWithIt(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	ctx, client := s.session()
	file := filepath.Join(s.home, "pid")
	s.send(ctx, client, "m-1", fmt.Sprintf("run: echo $$ > %s; sleep 300", file))
	s.waitFile(file)
	if err := killPID(int(s.worker("tools").Pid)); err != nil {
		t.Fatal(err)
	}
	s.eventually(5*time.Second, "the sleep is gone", func() error {
		for _, p := range descendants(s.pid()) {
			if p.command == "sleep" {
				return fmt.Errorf("pid %d is there", p.pid)
			}
		}
		return nil
	})
}

func TestNoWorkerOutlivesAKilledSupervisor(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	ctx, client := s.session()
	file := filepath.Join(s.home, "pid")
	s.send(ctx, client, "m-1", fmt.Sprintf("run: echo $$ > %s; sleep 300", file))
	s.waitFile(file)
	if n := len(ours(bin)); n < 6 {
		t.Fatalf("only %d processes run", n)
	}
	below := descendants(s.pid())
	s.kill()
	s.eventually(2*time.Second, "all workers and their children are gone", func() error {
		alive := map[int]bool{}
		for _, p := range processes() {
			alive[p.pid] = p.state != "Z"
		}
		for _, p := range below {
			if alive[p.pid] {
				return fmt.Errorf("pid %d (%s) is there", p.pid, p.command)
			}
		}
		return nil
	})
}

// A worker's log is a pipe to the supervisor, and what is in a pipe dies with its reader. So the worker ends in order instead of
// by a write that nobody reads, and leaves its last lines on disk, where the next supervisor finds them.
func TestTheLastLinesOfWorkersOutliveAKilledSupervisor(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	pid := s.worker("tools").Pid
	s.kill()
	folder := filepath.Join(s.home, "logs", "last-words")
	file := filepath.Join(folder, fmt.Sprintf("tools-%d", pid))
	s.eventually(5*time.Second, "the tools worker has ended in order", func() error {
		text, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(text), "supervisor is gone") {
			err = fmt.Errorf("it left %q", text)
		}
		return err
	})
	s.start()
	out, _, _ := s.command(nil, "ctl", "timeline", "-o", "json")
	if !strings.Contains(out, `"last_words"`) || !strings.Contains(out, "workers ended as their supervisor was gone") {
		t.Errorf("the timeline has no last words: %s", out)
	}
	if out, _, _ := s.command(nil, "ctl", "logs", "tools"); !strings.Contains(out, "supervisor is gone") {
		t.Errorf("the log of the worker: %s", out)
	}
	if list, err := os.ReadDir(folder); err != nil || len(list) > 0 {
		t.Errorf("they would be heard again: %v, %v", list, err)
	}
}

// A plugin may write in no folder but its own, so that is where its last lines are, and the log has them in the end.
func TestTheLastLinesOfAPluginOutliveAKilledSupervisor(t *testing.T) {
	pluginLeavesLastLines(t, quickRestarts, os.Geteuid())
}

// One with a user of its own reaches its folder by a descriptor alone, and owns what it leaves there.
func TestTheLastLinesOfAPluginWithAUserOfItsOwnOutliveAKilledSupervisor(t *testing.T) {
	needRoot(t)
	pluginLeavesLastLines(t, "supervisor: {agent_instances: 1, plugins: {default: {user: nobody}}}", nobody)
}

func pluginLeavesLastLines(t *testing.T, config string, owner int) {
	t.Helper()
	c := &court{system: newSystem(t, config)}
	c.chat = &socketChat{sys: c.system, id: "words"}
	c.start()
	c.must("plugins", "add", "--yes", plugintest.Build(t, "../plugins/examples/hello"))
	if answer := c.ask(`call: hello {"name":"Ann"}`); !strings.Contains(answer, "Hello, Ann!") {
		t.Fatal(answer)
	}
	pid := c.worker("plugin-hello").Pid
	c.kill()
	file := filepath.Join(c.home, "tool-plugins", "data", "hello", "last-words", fmt.Sprintf("plugin-hello-%d", pid))
	c.eventually(5*time.Second, "the plugin has ended in order", func() error {
		text, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(text), "ending") {
			err = fmt.Errorf("it left %q", text)
		}
		return err
	})
	if info, err := os.Stat(file); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != owner || info.Mode().Perm() != 0o600 {
		t.Errorf("they are of another user than %d, or for others to read: %v, %v", owner, info, err)
	}
	c.start()
	if out := c.must("ctl", "logs", "plugin-hello"); !strings.Contains(out, "last_words=true") {
		t.Errorf("the log of the plugin: %s", out)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it would be heard again: %v", err)
	}
}

func TestAFrozenWorkerIsFoundAndReplacedWhileTheRestGoesOn(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	ctx, client := s.session()
	before := s.worker("tools")
	if err := syscall.Kill(int(before.Pid), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	sent := s.send(ctx, client, "m-1", "are you there?")
	final, err := follow(ctx, client, sent.TurnId, nil)
	if err != nil || !strings.Contains(final.Text, "are you there?") {
		t.Fatalf("the rest did not go on: %v %v", final, err)
	}
	s.eventually(limit, "the frozen worker is replaced", func() error {
		w := s.worker("tools")
		if w.Pid == before.Pid || w.State != "ready" {
			return fmt.Errorf("pid %d, state %s", w.Pid, w.State)
		}
		if w.LastExit == nil || w.LastExit.Cause != "hung" {
			return fmt.Errorf("last exit %v", w.LastExit)
		}
		return nil
	})
}

func TestSIGTERMLetsAStreamingReplyFinishWithinTheBudget(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	ctx, client := s.session()
	sent := s.send(ctx, client, "m-1", "wait: 2")
	done := make(chan string, 1)
	go func() {
		final, err := follow(ctx, client, sent.TurnId, nil)
		done <- fmt.Sprint(final.GetOutcome(), err)
	}()
	s.runningAgent()
	code, took := s.stop()
	if code != 0 || took > 30*time.Second {
		t.Errorf("stopped with %d after %v", code, took)
	}
	if got := <-done; got != "OUTCOME_COMPLETED <nil>" {
		t.Errorf("the reply ended as %s", got)
	}
}

func TestAReplyThatDoesNotFinishInTheDrainIsResumedAfterTheStart(t *testing.T) {
	s := newSystem(t, "supervisor: {drain_timeout: 1s}")
	s.start()
	ctx, client := s.session()
	file := filepath.Join(s.home, "effect")
	sent := s.send(ctx, client, "m-1", fmt.Sprintf("run: echo once | tee -a %s; sleep 60", file))
	s.waitFile(file)
	if code, took := s.stop(); code != 0 || took > 20*time.Second {
		t.Errorf("stopped with %d after %v", code, took)
	}
	// The budget is one for all: no worker waits for the same turn once more.
	for _, second := range []string{"work did not end within the drain budget", "drained with unfinished work"} {
		if log := s.out.String(); strings.Contains(log, second) {
			t.Errorf("a worker was drained for a turn that the drain had given up: %s", log)
		}
	}
	s.start()
	ctx, client = s.session()
	final, err := follow(ctx, client, sent.TurnId, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(file)
	if final.Outcome != turnv1.Outcome_OUTCOME_COMPLETED || strings.Count(string(b), "once") != 1 {
		t.Errorf("final %v, effects %q", final, b)
	}
}

func TestAnApprovalIsWaitedForOverARestart(t *testing.T) {
	s := newSystem(t, quickRestarts)
	s.start()
	ctx, client := s.session()
	victim := filepath.Join(s.home, "doomed")
	if err := os.MkdirAll(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	sent := s.send(ctx, client, "m-1", "run: rm -rf "+victim)
	ask := func(client controlv1.ChatClient) *turnv1.ApprovalRequest {
		events, err := client.Follow(ctx, &controlv1.FollowRequest{TurnId: sent.TurnId})
		for err == nil {
			var e *turnv1.TurnEvent
			if e, err = events.Recv(); err == nil && e.GetApproval() != nil {
				return e.GetApproval()
			}
		}
		t.Fatal(err)
		return nil
	}
	first := ask(client)
	s.kill()
	if _, err := os.Stat(victim); err != nil {
		t.Fatal("it was done before anybody said yes")
	}
	s.start()
	_, client = s.session()
	second := ask(client)
	if first.ApprovalId != second.ApprovalId {
		t.Errorf("asked again as another question: %s, %s", first.ApprovalId, second.ApprovalId)
	}
	if _, err := client.Decide(ctx, &controlv1.DecideRequest{ApprovalId: second.ApprovalId, Approve: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := follow(ctx, client, sent.TurnId, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(victim); !os.IsNotExist(err) {
		t.Errorf("after the yes it is still there: %v", err)
	}
}

func TestSilenceMeansNo(t *testing.T) {
	s := newSystem(t, "approvals: {mode: manual, timeout: 1}")
	s.start()
	ctx, client := s.session()
	victim := filepath.Join(s.home, "spared")
	if err := os.MkdirAll(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	sent := s.send(ctx, client, "m-1", "run: rm -rf "+victim)
	final, err := follow(ctx, client, sent.TurnId, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(victim); err != nil {
		t.Errorf("it was done without a yes: %v", err)
	}
	if !strings.Contains(final.Text, "BLOCKED") {
		t.Errorf("the answer does not say so: %q", final.Text)
	}
}

func TestACardThatIsDoneIsToldToTheChatThatMadeItOnce(t *testing.T) {
	s := newSystem(t, quickRestarts+"  notify_interval: 100ms\n")
	s.start()
	ctx, client := s.session()
	sent := s.send(ctx, client, "m-1", "task: water the plants")
	if _, err := follow(ctx, client, sent.TurnId, nil); err != nil {
		t.Fatal(err)
	}
	boards, done := s.boards()
	defer done()
	list, err := boards.ListTasks(ctx, &hostv1.ListTasksRequest{})
	if err != nil || len(list.Tasks) != 1 || list.Tasks[0].Title != "water the plants" {
		t.Fatalf("%v %v", list, err)
	}
	if _, err := boards.SetStatus(ctx, &hostv1.SetStatusRequest{Id: list.Tasks[0].Id, Status: "done", Summary: "all wet"}); err != nil {
		t.Fatal(err)
	}
	notices, err := client.Notices(ctx, &controlv1.NoticesRequest{ChatId: "fault"})
	if err != nil {
		t.Fatal(err)
	}
	n, err := notices.Recv()
	if err != nil || !strings.Contains(n.Text, "water the plants") || !strings.Contains(n.Text, "all wet") {
		t.Fatalf("%v %v", n, err)
	}
	if _, err := client.Acknowledge(ctx, &controlv1.AcknowledgeRequest{OutboxId: n.OutboxId}); err != nil {
		t.Fatal(err)
	}
	// A notifier and a supervisor that come back must not tell it again.
	if err := killPID(int(s.worker("kanban").Pid)); err != nil {
		t.Fatal(err)
	}
	s.kill()
	s.start()
	st, err := s.status()
	if err != nil || st.Outbox.Pending != 0 {
		t.Errorf("outbox after the restart: %v %v", st.GetOutbox(), err)
	}
}
