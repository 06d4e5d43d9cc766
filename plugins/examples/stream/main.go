// Command stream is a tool plugin whose calls take a while: it shows progress, streams its output as it comes, and
// ends at once when the call is cancelled or its time is over.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

type args struct {
	From  int `json:"from" jsonschema:"number to count down from" minimum:"0" maximum:"1000"`
	Pause int `json:"pause_ms,omitempty" jsonschema:"milliseconds between two numbers" minimum:"0" maximum:"10000" default:"100"`
}

type result struct {
	Counted int    `json:"counted"`
	Took    string `json:"took"`
}

func countdown(ctx context.Context, c *plugins.Call, a args) (result, error) {
	begin := time.Now()
	for n := a.From; n > 0; n-- {
		if _, err := fmt.Fprintln(c, n); err != nil { // raw output, for whoever listens
			return result{}, err
		}
		if n%10 == 0 {
			c.Progress("%d to go", n) // a line for the person who waits
		}
		select {
		case <-time.After(time.Duration(a.Pause) * time.Millisecond):
		case <-ctx.Done(): // cancelled, or out of time
			return result{}, fmt.Errorf("stopped at %d: %w", n, ctx.Err())
		}
	}
	return result{a.From, time.Since(begin).Round(time.Millisecond).String()}, nil
}

func main() {
	plugins.Main("stream", "0.1.0", plugins.Func("countdown", "Count down to zero.", countdown,
		plugins.ReadOnly(), plugins.Timeout(10*time.Second, 5*time.Minute)))
}
