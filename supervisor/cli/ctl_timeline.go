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
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
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
what followed; and what led there: leaks, replacements, platforms that were not reached, starts and stops of the supervisor.
It answers questions like "why was the bot silent from 22:51 to 23:02?": what began before --since and was not over then is
told as well, and the start that ended a time without a supervisor, even if it came after --until. With --long it shows the
readings before each death and the last log lines as well.`,
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
					told.Stories = slices.DeleteFunc(told.Stories, func(s *controlv1.Story) bool { return moment(s.At - s.AwaySeconds).After(to) })
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
		if d := moment(s.At).Format("2006-01-02 MST"); d != day {
			day = d
			fmt.Fprintln(w, p.colour(dim, day))
		}
		fmt.Fprintf(w, "%s  %-16s %s\n", moment(s.At).Format("15:04:05"), who(s), p.colour(storyColour(s), storyText(s)))
		for _, t := range s.Turns {
			fmt.Fprintf(w, "%28s%s\n", "", printable(heldName(t)+": "+t.Seen))
		}
		if long {
			details(w, s)
		}
	}
	_, err := fmt.Fprintln(w, inShort(r.Stories))
	return err
}

// heldName names a turn that was cut, by its chat if that is known: it is what a person knows of it.
func heldName(t *controlv1.HeldTurn) string {
	name := t.TurnId
	if !strings.HasPrefix(name, "turn_") {
		name = "turn " + name
	}
	if t.Platform == "" {
		return name
	}
	return strings.TrimSpace(t.Platform+" "+oneLine(t.Chat, 24)) + ", " + name
}

// inShort is the end of the story: how many ends nobody wanted, and how long people waited for it.
func inShort(stories []*controlv1.Story) string {
	deaths, away := 0, 0.0
	cut, answered, longest := map[string]float64{}, map[string]bool{}, 0.0
	for _, s := range stories {
		if s.Kind == "death" && !wanted(s) {
			deaths++
		}
		away += s.AwaySeconds
		for _, t := range s.Turns {
			if _, known := cut[t.TurnId]; !known {
				cut[t.TurnId] = s.At
			}
			if end := max(t.EndedAt, t.DeliveredAt); end > 0 {
				answered[t.TurnId] = true
				longest = max(longest, end-cut[t.TurnId])
			}
		}
	}
	text := "in short: " + wording.Count(deaths, "death", "deaths") + " that nobody wanted"
	if away >= 1 {
		text += ", no supervisor for " + span(away)
	}
	switch open := len(cut) - len(answered); {
	case len(cut) == 0:
		return text + ", no turn was cut"
	case open == 0:
		text += ", " + wording.Count(len(cut), "turn", "turns") + " cut, none is open"
	default:
		text += fmt.Sprintf(", %s cut, %d still open", wording.Count(len(cut), "turn", "turns"), open)
	}
	if longest > 0 {
		text += "; the longest came to its end " + span(longest) + " after it was cut"
	}
	return text
}

// wanted says whether somebody wanted the end of a process.
func wanted(s *controlv1.Story) bool { return s.Cause == "planned" || s.Cause == "operator" }

func who(s *controlv1.Story) string {
	if s.Worker == "" {
		return "supervisor"
	}
	return oneLine(s.Worker, 16)
}

// storyText is the story in one line.
func storyText(s *controlv1.Story) string {
	text := strings.ReplaceAll(s.Kind, "_", " ")
	if s.Kind == "death" {
		text = "died (" + s.Cause
		if wanted(s) {
			text = "ended (" + s.Cause
		}
		switch {
		case s.Signal != "":
			text += ", " + s.Signal
		case s.Code != "" && (s.Code != "0" || !wanted(s)):
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
	return oneLine(text, maxNote)
}

func storyColour(s *controlv1.Story) string {
	switch {
	case s.Kind == "death" && wanted(s):
		return ""
	case s.Kind == "death", s.Kind == "worker_degraded", s.Kind == "over_limit", s.Kind == "watchdog_stuck":
		return red
	case strings.HasPrefix(s.Kind, "adapter_"), s.Kind == "leak_suspected", s.Kind == "recycling", s.Kind == "recycle_due", s.Kind == "child_ended", s.Kind == "memory_total":
		return yellow
	case s.Kind == "worker_recovered":
		return green
	}
	return ""
}

func details(w io.Writer, s *controlv1.Story) {
	for _, list := range [][]string{s.Samples, s.Log} {
		for _, l := range list {
			fmt.Fprintf(w, "%28s| %s\n", "", oneLine(l, 200))
		}
	}
}
