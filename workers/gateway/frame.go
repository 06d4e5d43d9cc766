package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

const (
	// watchInterval is how often changes of an adapter's state are looked for, at most; of one that does not tell of them
	// also at least.
	watchInterval = time.Second
	// answerMargin is kept of a delivery's deadline for the answer itself: one that comes late makes the row
	// unknown although nothing was sent.
	answerMargin = time.Second
)

// A frame is an adapter that runs.
type frame struct {
	platform string
	adapter  Adapter
	services *Services
	work     *workers.Work
	log      hclog.Logger
	lanes    *lanes
	sendFrom []string
	exit     func(code int)
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func startFrame(ctx context.Context, a Adapter, s Setup, work *workers.Work, sendFrom []string, exit func(int)) *frame {
	f := &frame{
		platform: s.Platform, adapter: a, services: s.Services, work: work, log: s.Log, sendFrom: sendFrom, exit: exit,
	}
	ctx, f.cancel = context.WithCancel(ctx)
	shower, _ := a.(Shower)
	f.lanes = newLanes(ctx, shower)
	f.running.Go(func() { f.run(ctx) })
	f.running.Go(func() { f.watch(ctx) })
	return f
}

// run runs the adapter. An end that was not asked for ends the process: the supervisor knows how often and how
// fast to start it again, an adapter does not.
func (f *frame) run(ctx context.Context) {
	err := f.adapter.Run(ctx)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("it stopped receiving without a reason")
	}
	f.log.Error("adapter ended", "error", err)
	f.exit(ipc.ExitFailed)
}

// watch puts changes of the adapter's state on the timeline.
func (f *frame) watch(ctx context.Context) {
	var bell Bell
	if t, ok := f.adapter.(Teller); ok {
		bell = t.Changed()
	}
	again := time.NewTimer(0)
	defer again.Stop()
	var o outages
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-bell:
		}
		now, s := time.Now(), f.adapter.Status()
		if kind, message, fields := o.see(s, now); kind != "" {
			f.log.Info(message, "state", fields["state"])
			f.services.Publish(ctx, kind, f.platform+": "+message, fields)
		}
		switch {
		case bell == nil:
			again.Reset(watchInterval)
		case s.Until.IsZero():
			again.Stop()
		default:
			again.Reset(max(s.Until.Sub(now), watchInterval))
		}
	}
}

func (f *frame) deliver(ctx context.Context, req *adapterv1.DeliverRequest) Delivered {
	sender, ok := f.adapter.(Sender)
	if !ok {
		return Rejected("clients of " + f.platform + " ask for their answers, nothing can be sent to them")
	}
	defer f.work.Begin()()
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-answerMargin))
		defer cancel()
	}
	to := toOf(req.To)
	release, err := f.lanes.take(ctx, to.ChatID, req.TurnId)
	if err != nil {
		return Retry(time.Second, "an earlier delivery to this chat still runs", req.MessageIds...)
	}
	defer release()
	text, files := takeFiles(req.Text, f.sendFrom)
	defer closeAll(files)
	return sender.Deliver(ctx, Delivery{
		ID: req.OutboxId, To: to, Text: text, Files: files,
		Attempt: int(req.Attempt), MessageIDs: req.MessageIds, TurnID: req.TurnId,
	})
}

func (f *frame) drain(ctx context.Context) int {
	left := 0
	if d, ok := f.adapter.(Drainer); ok {
		left = d.Drain(ctx)
	}
	select {
	case <-f.work.Idle():
		return left
	case <-ctx.Done():
		_, running, _ := f.work.Counts()
		return left + running
	}
}

func (f *frame) close() {
	f.cancel()
	f.lanes.wait()
	f.running.Wait()
	if c, ok := f.adapter.(Closer); ok {
		c.Close()
	}
}
