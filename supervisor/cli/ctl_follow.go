package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

const (
	// mostEvents is how many events are shown at most of a time that somebody asks for: those of weeks, as a rule.
	mostEvents = 20_000
	// mostLines is how many lines of a new supervisor are shown at most that came before a follower was back.
	mostLines = 10_000
	// backEvery is how often a follower looks whether there is a supervisor again.
	backEvery = 250 * time.Millisecond
)

// A follower says how one kind of message is followed.
type follower[M interface{ GetAt() float64 }] struct {
	follow bool // go on after what is there, and with the next supervisor
	open   func(controlv1.ControlClient) (recv func() (M, error), err error)
	again  func(last float64) // changes what open asks for to all that came since last
	show   func(M) error
}

// followAcross shows messages until there are no more or ctx ends. One that follows does not end with the supervisor, but
// goes on with what the next one has.
func followAcross[M interface{ GetAt() float64 }](ctx context.Context, p *program, f follower[M]) error {
	var last, shown float64 // times: of the newest message, and of the newest one before this connection
	begun, waits := false, false
	last = unixSeconds(time.Now())
	for {
		err := p.control(ctx, func(client controlv1.ControlClient) error {
			begun = true
			recv, err := f.open(client)
			if err != nil {
				return err
			}
			return follow(recv, func(m M) error {
				if m.GetAt() <= shown {
					return nil
				}
				last, waits = max(last, m.GetAt()), false
				return f.show(m)
			})
		})
		if !f.follow || !begun || !errors.Is(err, ipc.ErrGone) {
			return err
		}
		if !waits {
			fmt.Fprintln(p.err, "(the supervisor is gone; waiting for it)")
		}
		waits, shown = true, last
		f.again(last)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backEvery):
		}
	}
}

// receiver is what follow takes of a stream that was opened.
func receiver[M any](stream interface{ Recv() (M, error) }, err error) (func() (M, error), error) {
	if err != nil {
		return nil, err
	}
	return stream.Recv, nil
}

// follow hands each message of a stream on until it ends. Ending it by Ctrl-C is the usual end.
func follow[M any](recv func() (M, error), show func(M) error) error {
	for {
		m, err := recv()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, ipc.ErrCancelled):
			return nil
		case err != nil:
			return err
		}
		if err := show(m); err != nil {
			return err
		}
	}
}
