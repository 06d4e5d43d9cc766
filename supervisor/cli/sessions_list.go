package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func (p *program) sessionsList() *cobra.Command {
	r, f := &controlv1.ListSessionsRequest{}, &sessionFilter{}
	c := &cobra.Command{
		Use:   "list",
		Short: "List sessions, the newest activity first",
		Example: `  hermes-supervisor sessions list --source telegram
  hermes-supervisor sessions list --newer-than 7d --limit 100 -o json`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if r.Filter, err = f.read(c, time.Now()); err != nil {
				return err
			}
			return p.reading(c.Context(), func(client controlv1.SessionsClient) error {
				list, err := client.List(c.Context(), r)
				if err != nil {
					return err
				}
				return p.print(list, func(w io.Writer) error { return sessionTable(w, list, r.Limit) })
			})
		},
	}
	c.Flags().Uint32VarP(&r.Limit, "limit", "n", 20, "at most so many")
	c.Flags().BoolVar(&r.Archived, "archived", false, "archived ones too")
	f.flags(c)
	c.Flags().StringVar(&f.Cwd, "workspace", "", "the same as --cwd")
	return p.withOutput(c)
}

func sessionTable(w io.Writer, list *controlv1.ListSessionsResponse, limit uint32) error {
	if len(list.Sessions) == 0 {
		_, err := fmt.Fprintln(w, "no sessions found")
		return err
	}
	if err := sessionRows(w, list.Sessions); err != nil || list.More == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "… %d more not shown (use --limit %d to see more)\n", list.More, 2*limit)
	return err
}

func sessionRows(w io.Writer, list []*controlv1.SessionInfo) error {
	lines := make([][]string, len(list))
	for i, s := range list {
		lines[i] = []string{oneLine(s.Title, 32), oneLine(s.Preview, 40), s.Source, strconv.FormatInt(s.Messages, 10), date(int64(s.LastActive)), s.Id}
	}
	return rows(w, "TITLE | PREVIEW | SOURCE | MESSAGES | LAST ACTIVE | ID", lines)
}

func (p *program) sessionsShow() *cobra.Command {
	r := &controlv1.ShowSessionRequest{}
	c := &cobra.Command{
		Use:               "show SESSION",
		Short:             "Show one session and its newest messages",
		Example:           "  hermes-supervisor sessions show latest --limit 10",
		Args:              exactly(1, "the id, the beginning of the id, or the title of a session"),
		ValidArgsFunction: p.completeSession,
		RunE: func(c *cobra.Command, args []string) error {
			r.Session = args[0]
			return p.reading(c.Context(), func(client controlv1.SessionsClient) error {
				s, err := client.Show(c.Context(), r)
				if err != nil {
					return err
				}
				return p.print(s, func(w io.Writer) error { return sessionDetails(w, s) })
			})
		},
	}
	c.Flags().Uint32VarP(&r.Limit, "limit", "n", 50, "at most so many messages")
	return p.withOutput(c)
}

func sessionDetails(w io.Writer, r *controlv1.ShowSessionResponse) error {
	s := r.Session
	list := []string{"session", s.Id}
	state := "open"
	switch {
	case s.Running:
		state = "a turn is running"
	case s.EndedAt != 0:
		state = "ended " + date(int64(s.EndedAt)) + " (" + s.EndReason + ")"
	}
	if s.Archived {
		state += ", archived"
	}
	for _, f := range [][2]string{
		{"title", s.Title}, {"source", s.Source}, {"state", state}, {"chat", s.ChatId}, {"user", s.User}, {"model", s.Model}, {"folder", s.Cwd}, {"continues", s.Parent},
		{"started", date(int64(s.StartedAt))}, {"last active", date(int64(s.LastActive))}, {"messages", strconv.FormatInt(s.Messages, 10)},
		{"tool calls", strconv.FormatInt(s.ToolCalls, 10)}, {"tokens", strconv.FormatInt(s.Tokens, 10)},
	} {
		if f[1] != "" {
			list = append(list, f[0], f[1])
		}
	}
	if err := pairs(w, list...); err != nil {
		return err
	}
	if r.Earlier > 0 {
		fmt.Fprintf(w, "\n… %d earlier messages\n", r.Earlier)
	}
	for _, m := range r.Messages {
		who := m.Role
		if m.ToolName != "" {
			who += " " + cell(m.ToolName)
		}
		fmt.Fprintf(w, "\n[%s, %s]\n", cell(who), date(int64(m.At)))
		if m.Content != "" {
			fmt.Fprintln(w, printable(m.Content))
		}
		for _, call := range m.ToolCalls {
			fmt.Fprintln(w, "→", oneLine(call, 200))
		}
	}
	return nil
}

func (p *program) sessionsSearch() *cobra.Command {
	r := &controlv1.SearchSessionsRequest{}
	c := &cobra.Command{
		Use:   "search QUERY",
		Short: "Search all messages",
		Long: `Search looks for words in the messages of all sessions. "Quoted words" are a phrase, wor* is the beginning of a word; AND, OR
and NOT join them, and without one all words must be there. With --substring parts of words are found too.`,
		Example: `  hermes-supervisor sessions search 'invoice NOT draft'
  hermes-supervisor sessions search '"tax return"' --sort newest --role user
  hermes-supervisor sessions search 看板`,
		Args: exactly(1, "a query (quote one of several words)"),
		RunE: func(c *cobra.Command, args []string) error {
			r.Query = args[0]
			return p.reading(c.Context(), func(client controlv1.SessionsClient) error {
				found, err := client.Search(c.Context(), r)
				if err != nil {
					return err
				}
				return p.print(found, func(w io.Writer) error { return p.hits(w, found) })
			})
		},
	}
	c.Flags().Uint32VarP(&r.Limit, "limit", "n", 20, "at most so many messages")
	c.Flags().StringVar(&r.Source, "source", "", "only sessions of this `platform`")
	c.Flags().StringVar(&r.Session, "session", "", "only this `session`")
	c.Flags().StringSliceVar(&r.Roles, "role", nil, "only messages of these `roles` (user, assistant, tool)")
	c.Flags().StringVar(&r.Sort, "sort", "", "newest or oldest first instead of the best")
	c.Flags().BoolVar(&r.Substring, "substring", false, "parts of words too")
	_ = c.RegisterFlagCompletionFunc("session", p.completeSession)
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{"newest", "oldest"}, cobra.ShellCompDirectiveNoFileComp))
	return p.withOutput(c)
}

func (p *program) hits(w io.Writer, r *controlv1.SearchSessionsResponse) error {
	if len(r.Hits) == 0 {
		fmt.Fprintln(w, "nothing found")
	}
	for _, h := range r.Hits {
		fmt.Fprintf(w, "%s  %s  %s  %s\n  %s\n", h.Session, date(int64(h.At)), cell(h.Source), oneLine(h.Title, 50), p.marked(h.Role+": "+oneLine(h.Snippet, 400)))
	}
	if r.Partial {
		fmt.Fprintf(p.err, "the search index is being built (%d of %d messages), and there was no time to look through the rest: search again later\n", r.IndexDone, r.IndexTotal)
	}
	return nil
}

func (p *program) sessionsStats() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "stats",
		Short:   "Count sessions and messages",
		Example: "  hermes-supervisor sessions stats -o json",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.reading(c.Context(), func(client controlv1.SessionsClient) error {
				s, err := client.Stats(c.Context(), &controlv1.SessionStatsRequest{})
				if err != nil {
					return err
				}
				return p.print(s, func(w io.Writer) error { return sessionStats(w, s) })
			})
		},
	})
}

func sessionStats(w io.Writer, s *controlv1.SessionStatsResponse) error {
	index := "whole"
	if s.IndexDone < s.IndexTotal {
		index = fmt.Sprintf("%d %% built", 100*s.IndexDone/s.IndexTotal)
	}
	list := []string{"sessions", fmt.Sprintf("%d (%d archived)", s.Sessions, s.Archived), "messages", strconv.FormatInt(s.Messages, 10),
		"tokens", strconv.FormatInt(s.Tokens, 10), "size", or(size(s.Bytes), "0 KiB"), "search index", index}
	if err := pairs(w, list...); err != nil || len(s.Sources) == 0 {
		return err
	}
	lines := make([][]string, len(s.Sources))
	for i, o := range s.Sources {
		lines[i] = []string{o.Source, strconv.FormatInt(o.Sessions, 10), strconv.FormatInt(o.Messages, 10)}
	}
	fmt.Fprintln(w)
	return rows(w, "SOURCE | SESSIONS | MESSAGES", lines)
}
