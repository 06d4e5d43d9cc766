package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// defaultSince is how far back the timeline goes: the night before.
const defaultSince = "24h"

func (p *program) ctlTimeline() *cobra.Command {
	r := &controlv1.TellRequest{}
	since, until, long := when{defaultSince}, when{}, false
	c := &cobra.Command{
		Use:   "timeline",
		Short: "Tell what happened, and why, as one story",
		Long: `Timeline tells each death with its cause, who wanted it, what the worker held, what became of the turns that it cut, and
what followed; and what led there: leaks, replacements, starts and stops of the supervisor. It answers questions like "why was
the bot silent from 22:51 to 23:02?". With --long it shows the readings before each death and the last log lines as well.`,
		Example: `  hermes-supervisor ctl timeline --since 1h
  hermes-supervisor ctl timeline --since 22:45 --until 23:05
  hermes-supervisor ctl timeline --worker agent-1 --long
  hermes-supervisor ctl timeline --since 24h -o json | jq '.stories[] | select(.kind == "death") | {at, worker, cause, message}'`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			now := time.Now()
			from, to := since.at(now), until.at(now)
			if !to.IsZero() && to.Before(from) {
				return usageError{fmt.Errorf("--until %s is before --since %s", until.text, since.text)}
			}
			r.Since = unixSeconds(from)
			return p.connected(c.Context(), func(conn grpc.ClientConnInterface) error {
				told, err := controlv1.NewTimelineClient(conn).Tell(c.Context(), r)
				if err != nil {
					return fmt.Errorf("timeline: %w", err)
				}
				if !to.IsZero() {
					told.Stories = slices.DeleteFunc(told.Stories, func(s *controlv1.Story) bool { return moment(s.At).After(to) })
				}
				return p.print(told, func(w io.Writer) error {
					if len(told.Stories) == 0 {
						return nothingHappened(w, r.Worker, from, to)
					}
					return p.timeline(w, told, long)
				})
			})
		},
	}
	c.Flags().Var(&since, "since", "from this `time` on: "+whenUsage+"; 0: all there is")
	c.Flags().Var(&until, "until", "up to this `time`")
	c.Flags().StringVar(&r.Worker, "worker", "", "only what this `worker` did or held")
	c.Flags().BoolVarP(&long, "long", "l", false, "with the readings and log lines before each death")
	_ = c.RegisterFlagCompletionFunc("worker", func(c *cobra.Command, _ []string, s string) ([]string, cobra.ShellCompDirective) {
		return p.completeWorkers(c, nil, s)
	})
	return p.withOutput(c)
}

// nothingHappened says of which worker and time nothing is told.
func nothingHappened(w io.Writer, worker string, from, to time.Time) error {
	text := "nothing happened"
	if worker != "" {
		text += " to " + printable(worker)
	}
	if !from.IsZero() {
		text += " since " + from.Format("2006-01-02 15:04")
	}
	if !to.IsZero() {
		text += " until " + to.Format("2006-01-02 15:04")
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// timeline writes a line a story, and under it one for each turn that it cut.
func (p *program) timeline(w io.Writer, r *controlv1.TellResponse, long bool) error {
	if r.Cut {
		fmt.Fprintln(w, "(older events are left out; ask for a shorter time)")
	}
	day := ""
	for _, s := range r.Stories {
		if d := moment(s.At).Format("2006-01-02"); d != day {
			day = d
			fmt.Fprintln(w, p.colour(dim, day))
		}
		fmt.Fprintf(w, "%s  %-14s %s\n", moment(s.At).Format("15:04:05"), who(s), p.colour(storyColour(s), storyText(s)))
		for _, t := range s.Turns {
			fmt.Fprintf(w, "%26s%s\n", "", printable(heldName(t)+": "+t.Seen))
		}
		if long {
			details(w, s)
		}
	}
	return nil
}

// heldName names a turn that was cut.
func heldName(t *controlv1.HeldTurn) string {
	if strings.HasPrefix(t.TurnId, "turn_") {
		return t.TurnId
	}
	return "turn " + t.TurnId
}

func who(s *controlv1.Story) string {
	if s.Worker == "" {
		return "supervisor"
	}
	return oneLine(s.Worker, 14)
}

// storyText is the story in one line.
func storyText(s *controlv1.Story) string {
	text := strings.ReplaceAll(s.Kind, "_", " ")
	if s.Kind == "death" {
		text = "died (" + s.Cause
		switch {
		case s.Signal != "":
			text += ", " + s.Signal
		case s.Code != "":
			text += ", code " + s.Code
		}
		if s.Uptime != "" {
			text += ", up " + s.Uptime
		}
		text += ")"
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	if s.Next != "" {
		text += " → " + s.Next
	}
	return oneLine(text, 220)
}

func storyColour(s *controlv1.Story) string {
	switch {
	case s.Kind == "death" && (s.Cause == "planned" || s.Cause == "operator"):
		return ""
	case s.Kind == "death", s.Kind == "worker_degraded", s.Kind == "over_limit", s.Kind == "watchdog_stuck":
		return red
	case s.Kind == "leak_suspected", s.Kind == "recycling", s.Kind == "recycle_due", s.Kind == "child_ended", s.Kind == "memory_total":
		return yellow
	case s.Kind == "worker_recovered":
		return green
	}
	return ""
}

func details(w io.Writer, s *controlv1.Story) {
	for _, list := range [][]string{s.Samples, s.Log} {
		for _, l := range list {
			fmt.Fprintf(w, "%26s| %s\n", "", oneLine(l, 200))
		}
	}
}
