package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// sessionFilter is the flags that select sessions.
type sessionFilter struct {
	controlv1.SessionFilter
	times  map[string]*string
	counts map[string]*int64
	costs  map[string]*float64
}

// flags adds all of them to a command.
func (f *sessionFilter) flags(c *cobra.Command) {
	for _, t := range []struct {
		name, usage string
		to          *string
	}{
		{"source", "only sessions of this `platform` (terminal, telegram, cli, cron …)", &f.Source}, {"title", "`text` in the title", &f.Title},
		{"end-reason", "`reason` for which it ended", &f.EndReason}, {"cwd", "`text` in the folder it worked in", &f.Cwd}, {"model", "`text` in the model's name", &f.Model},
		{"provider", "`name` of the model's provider", &f.Provider}, {"user", "`id` of the person", &f.User}, {"chat-id", "`id` of the chat", &f.ChatId},
		{"chat-type", "`kind` of the chat: dm, group, channel, thread", &f.ChatType}, {"branch", "git `branch` it worked in", &f.Branch},
	} {
		c.Flags().StringVar(t.to, t.name, "", t.usage)
	}
	f.times, f.counts, f.costs = map[string]*string{}, map[string]*int64{}, map[string]*float64{}
	for name, usage := range map[string]string{
		"older-than": "without activity since this `time`: 90d, 2w, 12h, 30 (days) or 2026-01-31", "newer-than": "with activity since this `time`",
		"before": "started before this `time`", "after": "started after this `time`",
	} {
		f.times[name] = c.Flags().String(name, "", usage)
	}
	for _, what := range []string{"messages", "tokens", "tool-calls"} {
		f.counts["min-"+what] = c.Flags().Int64("min-"+what, 0, "with at least so many "+what)
		f.counts["max-"+what] = c.Flags().Int64("max-"+what, 0, "with at most so many "+what)
	}
	f.costs["min-cost"] = c.Flags().Float64("min-cost", 0, "of at least so many US dollars")
	f.costs["max-cost"] = c.Flags().Float64("max-cost", 0, "of at most so many US dollars")
}

// read makes a filter of what was given.
func (f *sessionFilter) read(c *cobra.Command, now time.Time) (*controlv1.SessionFilter, error) {
	for name, to := range map[string]*float64{"older-than": &f.ActiveBefore, "newer-than": &f.ActiveAfter, "before": &f.StartedBefore, "after": &f.StartedAfter} {
		if !c.Flags().Changed(name) {
			continue
		}
		at, err := parseWhen(*f.times[name], now)
		if err != nil {
			return nil, usageError{fmt.Errorf("--%s %s: %w", name, *f.times[name], err)}
		}
		*to = float64(at.UnixMicro()) / 1e6
	}
	for name, to := range map[string]**int64{
		"min-messages": &f.MinMessages, "max-messages": &f.MaxMessages, "min-tokens": &f.MinTokens, "max-tokens": &f.MaxTokens,
		"min-tool-calls": &f.MinToolCalls, "max-tool-calls": &f.MaxToolCalls,
	} {
		if c.Flags().Changed(name) {
			*to = f.counts[name]
		}
	}
	for name, to := range map[string]**float64{"min-cost": &f.MinCost, "max-cost": &f.MaxCost} {
		if c.Flags().Changed(name) {
			*to = f.costs[name]
		}
	}
	return &f.SessionFilter, nil
}
