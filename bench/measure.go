package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func measureStarts(r *report, h *home, _ *provider, o options) error {
	var took []float64
	for range o.starts {
		d, err := h.start()
		if err != nil {
			return err
		}
		took = append(took, milliseconds(d))
		if err := h.stop(); err != nil {
			return err
		}
	}
	r.add("start to READY", "ms", took...)
	return nil
}

// measureTurns measures what a turn takes beside the provider's own time.
func measureTurns(r *report, h *home, p *provider, o options) error {
	if _, err := h.start(); err != nil {
		return err
	}
	conn, err := h.client()
	if err != nil {
		return err
	}
	file := filepath.Join(h.dir, "home", "note.txt")
	if err := os.WriteFile(file, []byte("a note\n"), 0o600); err != nil {
		return err
	}
	chat := controlv1.NewChatClient(conn)
	for _, kind := range []struct{ name, text string }{{"no tool call", "hello"}, {"one tool call", "tool:" + file}} {
		var first, final []float64
		for n := range o.turns {
			spent := p.spent.Load()
			turn, err := oneTurn(chat, fmt.Sprintf("%s %d", kind.name, n), kind.text)
			if err != nil {
				return err
			}
			own := time.Duration(p.spent.Load() - spent)
			first = append(first, milliseconds(turn.toText))
			final = append(final, milliseconds(turn.whole-own))
		}
		r.add("turn with "+kind.name+", to first text", "ms", first...)
		r.add("turn with "+kind.name+", without the provider's time", "ms", final...)
	}
	return nil
}

// A measuredTurn is how long a turn took to its first text and to its end, and its reply.
type measuredTurn struct {
	toText, whole time.Duration
	reply         string
}

// oneTurn sends a message and waits for the final reply. A session for each keeps the conversation short.
func oneTurn(chat controlv1.ChatClient, id, text string) (m measuredTurn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begun := time.Now()
	sent, err := chat.Send(ctx, &controlv1.SendRequest{ChatId: "bench", MessageId: id, Text: text, NewSession: true})
	if err != nil {
		return m, err
	}
	events, err := chat.Follow(ctx, &controlv1.FollowRequest{TurnId: sent.TurnId})
	if err != nil {
		return m, err
	}
	for {
		e, err := events.Recv()
		if err != nil {
			return m, err
		}
		if e.GetText() != nil && m.toText == 0 {
			m.toText = time.Since(begun)
		}
		if f := e.GetFinal(); f != nil {
			if f.Error != "" {
				return m, errors.New(f.Error)
			}
			m.whole, m.reply = time.Since(begun), f.Text
			if m.toText == 0 {
				m.toText = m.whole
			}
			return m, nil
		}
	}
}

// measureKills kills workers and measures until the replacement exists and until it has answered its first call.
func measureKills(r *report, h *home, _ *provider, o options) error {
	if _, err := h.start(); err != nil {
		return err
	}
	for _, name := range []string{"agent-1", "tools", "kanban"} {
		var exists, serves []float64
		for range o.kills {
			a, b, err := h.killOnce(name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			exists, serves = append(exists, milliseconds(a)), append(serves, milliseconds(b))
		}
		r.add("kill of "+name+" to the replacement's start", "ms", exists...)
		r.add("kill of "+name+" to its first answered call", "ms", serves...)
	}
	return nil
}

func (h *home) killOnce(name string) (exists, serves time.Duration, err error) {
	w, err := h.worker(name)
	if err != nil {
		return 0, 0, err
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", w.Pid))
	if err != nil {
		return 0, 0, err
	}
	others := h.running(exe)
	begun := time.Now()
	if err := syscall.Kill(int(w.Pid), syscall.SIGKILL); err != nil {
		return 0, 0, err
	}
	for time.Since(begun) < patience {
		if exists == 0 {
			for pid := range h.running(exe) {
				if !others[pid] {
					exists = time.Since(begun)
				}
			}
		}
		now, err := h.worker(name)
		if err == nil && now.Pid != w.Pid && now.State == "ready" {
			return exists, time.Since(begun), nil
		}
	}
	return 0, 0, errors.New("not replaced")
}

func (h *home) worker(name string) (*controlv1.WorkerStatus, error) {
	st, err := h.status()
	if err != nil {
		return nil, err
	}
	for _, w := range st.Workers {
		if w.Name == name && w.Pid > 0 {
			return w, nil
		}
	}
	return nil, fmt.Errorf("worker %s does not run", name)
}

// running returns the children of the supervisor that execute exe.
func (h *home) running(exe string) map[int]bool {
	found := map[int]bool{}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", h.cmd.Process.Pid, h.cmd.Process.Pid))
	children := strings.Fields(string(b))
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", h.cmd.Process.Pid))
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		children = append(children, strings.Fields(string(b))...)
	}
	for _, c := range children {
		if target, err := os.Readlink("/proc/" + c + "/exe"); err == nil && target == exe {
			pid, _ := strconv.Atoi(c)
			found[pid] = true
		}
	}
	return found
}

// processes names the supervisor and its workers.
func (h *home) processes() (names []string, pids []int, err error) {
	st, err := h.status()
	if err != nil {
		return nil, nil, err
	}
	names, pids = []string{"supervisor"}, []int{h.cmd.Process.Pid}
	for _, w := range st.Workers {
		if w.Pid > 0 {
			names, pids = append(names, w.Name), append(pids, int(w.Pid))
		}
	}
	return names, pids, nil
}

// memory of a process in MiB.
type memory struct{ rss, pss, anon float64 }

func readMemory(pid int) (memory, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	defer func() { _ = f.Close() }()
	var m memory
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "Rss:":
			m.rss = kib / 1024
		case "Pss:":
			m.pss = kib / 1024
		case "Anonymous:":
			m.anon = kib / 1024
		}
	}
	return m, nil
}
