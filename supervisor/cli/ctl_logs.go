package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func (p *program) ctlLogs() *cobra.Command {
	r := &controlv1.LogsRequest{}
	c := &cobra.Command{
		Use:   "logs [NAME]",
		Short: "Show log lines of the supervisor and its workers",
		Example: `  hermes-supervisor ctl logs -n 20
  hermes-supervisor ctl logs -f tools
  hermes-supervisor ctl logs supervisor -o json | jq -r .message`,
		Args:              between(0, 1, "at most the name of a worker, or supervisor"),
		ValidArgsFunction: p.completeProcesses,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.Worker = args[0]
			}
			r.NoTail = r.Tail == 0
			return followAcross(c.Context(), p, follower[*controlv1.LogLine]{
				follow: r.Follow,
				open: func(client controlv1.ControlClient) (func() (*controlv1.LogLine, error), error) {
					stream, err := client.Logs(c.Context(), r)
					return receiver(stream, err)
				},
				again: func(float64) { r.NoTail, r.Tail = false, mostLines },
				show:  func(l *controlv1.LogLine) error { return p.line(l, p.logText(l)) },
			})
		},
	}
	c.Flags().BoolVarP(&r.Follow, "follow", "f", false, "go on with new lines, and with those of the next supervisor if this one ends")
	c.Flags().Uint32VarP(&r.Tail, "lines", "n", 100, "lines from before, 0 for none")
	return p.withOutput(c)
}

func (p *program) ctlEvents() *cobra.Command {
	r := &controlv1.EventsRequest{}
	var since when
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to workers and turns, and why",
		Example: `  hermes-supervisor ctl events
  hermes-supervisor ctl events -f --worker agent-1
  hermes-supervisor ctl events --since 22:51 -o json`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			r.Since = unixSeconds(since.at(time.Now()))
			if r.Since > 0 && !c.Flags().Changed("limit") {
				r.Limit = mostEvents
			}
			r.NoneBefore = r.Limit == 0
			return followAcross(c.Context(), p, follower[*controlv1.Event]{
				follow: r.Follow,
				open: func(client controlv1.ControlClient) (func() (*controlv1.Event, error), error) {
					stream, err := client.Events(c.Context(), r)
					return receiver(stream, err)
				},
				again: func(last float64) { r.NoneBefore, r.Limit, r.Since = false, mostEvents, last },
				show:  func(e *controlv1.Event) error { return p.line(e, p.eventText(e)) },
			})
		},
	}
	c.Flags().BoolVarP(&r.Follow, "follow", "f", false, "go on with new events, and with those of the next supervisor if this one ends")
	c.Flags().Uint32VarP(&r.Limit, "limit", "n", 100, "newest events from before, 0 for none; with --since all")
	c.Flags().StringVar(&r.Worker, "worker", "", "only those of this `worker`")
	_ = c.RegisterFlagCompletionFunc("worker", p.completeWorkers)
	c.Flags().Var(&since, "since", "only those since this `time`: "+whenUsage)
	return p.withOutput(c)
}

// line writes one message of a stream: a JSON document on a line of its own, or text.
func (p *program) line(m proto.Message, text string) error {
	if p.output == outputJSON {
		text = string(document(m))
	}
	_, err := fmt.Fprintln(p.out, text)
	return err
}

func (p *program) logText(l *controlv1.LogLine) string {
	codes := map[string]string{"error": red, "warn": yellow, "debug": dim, "trace": dim}
	who := l.Worker
	if l.Pid > 0 {
		who = fmt.Sprintf("%s[%d]", l.Worker, l.Pid)
	}
	level := l.Level
	if l.Stream != "" && l.Stream != "log" {
		level = l.Stream
	}
	text := fmt.Sprintf("%s %-5s %s: %s", clock(l.At), level, printable(who), printable(l.Message))
	return p.colour(codes[l.Level], text+fieldsText(l.Fields))
}

func (p *program) eventText(e *controlv1.Event) string {
	text := moment(e.At).Format("2006-01-02 15:04:05.000") + " " + e.Kind
	if e.Worker != "" {
		text += " " + e.Worker
	}
	if e.Pid > 0 {
		text += fmt.Sprintf("[%d]", e.Pid)
	}
	if e.TurnId != "" {
		text += " turn " + e.TurnId
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	fields := maps.Clone(e.Fields)
	// Many lines each, which would hide the event; the timeline shows them.
	delete(fields, "log")
	delete(fields, "samples")
	return printable(text) + fieldsText(fields)
}

func fieldsText(fields map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		v := fields[k]
		if v == "" || strings.ContainsAny(v, " \t\n\"=") {
			v = fmt.Sprintf("%q", v)
		}
		b.WriteString(" " + printable(k) + "=" + printable(v))
	}
	return b.String()
}
