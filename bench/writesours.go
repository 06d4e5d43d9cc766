package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/turn"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// A workshop is what a supervisor is to its agents, with writers for agents: the store, the hub and the worker processes,
// joined as the supervisor joins them.
type workshop struct {
	dir     string
	store   *store.State
	hub     *turn.Hub
	workers []*worker.Worker
	leave   context.CancelFunc
	running sync.WaitGroup
	book    *logs.Book
	loads   int
}

// newWorkshop starts n worker processes that run so many turns each at once.
func newWorkshop(n, turnsEach int) (w *workshop, err error) {
	w = &workshop{}
	if w.dir, err = os.MkdirTemp("", "hs-bench-"); err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancel(context.Background())
	w.leave = leave
	if err := w.open(ctx, n, turnsEach); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *workshop) open(ctx context.Context, n, turnsEach int) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if w.store, err = store.OpenState(ctx, w.path(), store.Options{}); err != nil {
		return err
	}
	w.book = logs.NewBook(logs.Options{})
	w.hub = turn.New(turn.Config{Store: w.store, TurnsPerAgent: turnsEach})
	if err := w.hub.Start(ctx); err != nil {
		return err
	}
	sampler, orphans := sample.NewSampler(sample.System, time.Second), worker.NewOrphans(w.dir, w.book.Logger())
	w.running.Go(func() { sampler.Run(ctx) })
	w.running.Go(func() { orphans.Run(ctx) })
	hooks := worker.Hooks{
		Register: func(s *grpc.Server) { w.hub.Register(s) },
		Up:       func(id ipc.Identity, conn grpc.ClientConnInterface) func() { return w.hub.Attach(id, conn) },
		Event:    func(store.Event) {},
	}
	env := worker.Env{Log: w.book, Sampler: sampler, Orphans: orphans, RunDir: w.dir, Version: ipc.Version()}
	for i := range n {
		one := worker.New(worker.Spec{Name: fmt.Sprint("writer-", i+1), Role: ipc.RoleAgent, Path: self, Args: []string{commandWorker}}, hooks, env)
		w.workers = append(w.workers, one)
		w.running.Go(func() { one.Run(ctx) })
	}
	return w.ready()
}

func (w *workshop) path() string { return filepath.Join(w.dir, "state.db") }

// ready waits until every worker serves.
func (w *workshop) ready() error {
	limit := time.After(patience)
	for _, one := range w.workers {
		select {
		case <-one.Ready():
		case <-limit:
			for _, l := range w.book.Tail("", 20) {
				fmt.Fprintln(os.Stderr, l.Worker, l.Message, l.Fields)
			}
			return errors.New("the writing workers do not start")
		}
	}
	return nil
}

// write gives n writers a load each and waits for what they reached.
func (w *workshop) write(n int, l load) ([]written, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.For+2*patience)
	defer cancel()
	all, errs := make([]written, n), make([]error, n)
	var waiting sync.WaitGroup
	w.loads++
	for i := range n {
		acc, err := w.hub.Accept(ctx, store.Inbound{Platform: "test", ChatID: strconv.Itoa(i), MessageID: strconv.Itoa(w.loads), Text: string(text),
			SessionKey: fmt.Sprint(w.loads, "/", i)})
		if err != nil {
			return nil, err
		}
		waiting.Go(func() { errs[i] = w.await(ctx, acc.TurnID, &all[i]) })
	}
	waiting.Wait()
	return all, errors.Join(errs...)
}

// await waits for the end of a turn and reads what its writer reached from the reply.
func (w *workshop) await(ctx context.Context, turnID string, to *written) error {
	var final *turnv1.Final
	if err := w.hub.Follow(ctx, turnID, func(e *turnv1.TurnEvent) error {
		if f := e.GetFinal(); f != nil {
			final = f
		}
		return nil
	}); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(final.GetText()), to); err != nil {
		return fmt.Errorf("turn %s ended with %q: %w", turnID, final.GetText(), err)
	}
	return nil
}

// writeInside is the same load by goroutines that ask the store themselves.
func (w *workshop) writeInside(n int, l load) ([]written, error) {
	ctx := context.Background()
	all, errs := make([]written, n), make([]error, n)
	var writing sync.WaitGroup
	w.loads++
	for i := range n {
		acc, err := w.store.Accept(ctx, store.Inbound{Platform: "inside", ChatID: strconv.Itoa(i), MessageID: strconv.Itoa(w.loads), SessionKey: fmt.Sprint("inside ", w.loads, "/", i)})
		if err != nil {
			return nil, err
		}
		t, err := w.store.Lease(ctx, acc.TurnID, "inside")
		if err != nil {
			return nil, err
		}
		writing.Go(func() {
			all[i] = l.run(uint64(i), func(i int, text string) error {
				_, err := w.store.AppendSteps(ctx, t.ID, t.Fence, []store.Message{{Seq: uint32(i + 1), Role: "assistant", Content: text}}, "")
				return err
			})
			_, errs[i] = w.store.FinishTurn(ctx, store.Finish{TurnID: t.ID, Fence: t.Fence, Outcome: store.OutcomeCompleted})
		})
	}
	writing.Wait()
	return all, errors.Join(errs...)
}

func (w *workshop) close() {
	w.leave()
	w.running.Wait()
	if w.hub != nil {
		w.hub.Close()
	}
	if w.store != nil {
		_ = w.store.Close()
	}
	if w.book != nil {
		w.book.Close()
	}
	_ = os.RemoveAll(w.dir)
}
