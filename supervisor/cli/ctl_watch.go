package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func (p *program) ctlWatch() *cobra.Command {
	every, output := time.Second, outputJSON
	c := &cobra.Command{
		Use:   "watch",
		Short: "Stream status and events as JSON, one document a line",
		Long: `Watch is for programs: a line {"type":"status","status":{…}} each interval and a line {"type":"event","event":{…}} for
each event as it happens. It ends with the supervisor (exit code 75) or by Ctrl-C.`,
		Example: `  hermes-supervisor ctl watch | jq -c 'select(.type == "event") | .event.kind'
  hermes-supervisor ctl watch --interval 10s`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != outputJSON {
				return usageError{fmt.Errorf("-o %s: watch is for programs and writes json only; for people: hermes-supervisor ctl top", output)}
			}
			if every < 100*time.Millisecond {
				return usageError{fmt.Errorf("--interval %v: at least 100ms", every)}
			}
			return p.control(c.Context(), func(client controlv1.ControlClient) error { return p.watch(c.Context(), client, every) })
		},
	}
	c.Flags().DurationVar(&every, "interval", every, "`time` between two looks at the status")
	c.Flags().StringVarP(&output, "output", "o", output, "output `format`: json, there is no other")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputJSON}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// watch writes both kinds of documents until ctx ends or one of them cannot be had any more.
func (p *program) watch(ctx context.Context, client controlv1.ControlClient, every time.Duration) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var writing sync.Mutex
	write := func(kind string, doc []byte) error {
		writing.Lock()
		defer writing.Unlock()
		_, err := fmt.Fprintf(p.out, `{"type":"%s","%s":%s}`+"\n", kind, kind, doc)
		return err
	}
	stream, err := client.Events(ctx, &controlv1.EventsRequest{Follow: true, NoneBefore: true})
	if err != nil {
		return err
	}
	status := func() error {
		r, err := client.Status(ctx, &controlv1.StatusRequest{})
		if err != nil {
			return err
		}
		return write("status", document(r))
	}
	// The first status is written also where the events end at once.
	if err := status(); err != nil {
		return err
	}
	events := make(chan error, 1)
	go func() { // ends with ctx or with the stream
		defer end()
		events <- follow(stream.Recv, func(e *controlv1.Event) error { return write("event", document(e)) })
	}()
	err = repeat(ctx, every, status)
	stopped := ctx.Err() != nil
	end()
	ended := <-events
	if stopped {
		return ended // what the events say: nothing after Ctrl-C
	}
	return err
}

// repeat calls f in intervals until ctx ends or f fails.
func repeat(ctx context.Context, every time.Duration, f func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := f(); err != nil {
			return err
		}
	}
}
