package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

func (p *program) sessionsRename() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:               "rename SESSION TITLE…",
		Short:             "Give a session a title",
		Long:              "Rename gives a session a title of one line and at most 100 characters, which no other session may have.",
		Example:           "  hermes-supervisor sessions rename latest Garden plans",
		Args:              between(2, 100, "a session and its title"),
		ValidArgsFunction: p.completeSession,
		RunE: func(c *cobra.Command, args []string) error {
			return p.onSessions(c.Context(), func(client controlv1.SessionsClient) error {
				s, err := client.Rename(c.Context(), &controlv1.RenameSessionRequest{Session: args[0], Title: strings.Join(args[1:], " ")})
				if err != nil {
					return err
				}
				return p.print(s, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s is %q now\n", s.Id, printable(s.Title))
					return err
				})
			})
		},
	})
}

// A change is a command that changes several sessions.
type change struct {
	verb, done string // "delete", "deleted"
	request    *controlv1.ChangeSessionsRequest
	call       func(controlv1.SessionsClient, context.Context, *controlv1.ChangeSessionsRequest, ...grpc.CallOption) (*controlv1.ChangeSessionsResponse, error)
	ask        bool // a person is asked unless --yes is given
	yes        bool
}

// run shows what would be changed, asks, and changes it.
func (p *program) change(ctx context.Context, o *change) error {
	return p.onSessions(ctx, func(client controlv1.SessionsClient) error {
		if o.ask && !o.yes && !o.request.DryRun {
			preview, err := p.preview(ctx, client, o)
			if err != nil {
				return err
			}
			if len(preview.Sessions) == 0 {
				return p.print(preview, func(w io.Writer) error { return changed(w, preview, "nothing to "+o.verb) })
			}
			if !p.confirm(fmt.Sprintf("%s %s for good?", o.verb, wording.Count(len(preview.Sessions), "session", "sessions"))) {
				return declined("nothing was "+o.done, o.verb+"s")
			}
		}
		r, err := o.call(client, ctx, o.request)
		if err != nil {
			return err
		}
		head := o.done + " " + wording.Count(len(r.Sessions), "session", "sessions")
		if o.request.DryRun {
			head = "would have " + head
		}
		return p.print(r, func(w io.Writer) error { return changed(w, r, head) })
	})
}

// maxPreview sessions are shown before the question.
const maxPreview = 15

func (p *program) preview(ctx context.Context, client controlv1.SessionsClient, o *change) (*controlv1.ChangeSessionsResponse, error) {
	dry := &controlv1.ChangeSessionsRequest{
		Sessions: o.request.Sessions, Filter: o.request.Filter, DryRun: true, Undo: o.request.Undo, IncludeArchived: o.request.IncludeArchived,
		IncludePinned: o.request.IncludePinned, NeverActive: o.request.NeverActive,
	}
	r, err := o.call(client, ctx, dry)
	if err != nil || len(r.Sessions) == 0 {
		return r, err
	}
	list := r.Sessions
	if err := sessionRows(forPeople(p.err), list[:min(len(list), maxPreview)]); err != nil {
		return nil, err
	}
	if len(list) > maxPreview {
		fmt.Fprintf(forPeople(p.err), "… and %d more; oldest activity %s, newest %s\n", len(list)-maxPreview, date(int64(list[0].LastActive)), date(int64(list[len(list)-1].LastActive)))
	}
	for _, s := range list {
		if s.Pinned {
			fmt.Fprintf(p.err, "%s is pinned\n", s.Id)
		}
	}
	return r, nil
}

func changed(w io.Writer, r *controlv1.ChangeSessionsResponse, head string) error {
	fmt.Fprintln(w, head)
	for _, s := range r.Sessions {
		fmt.Fprintf(w, "  %s  %s\n", s.Id, oneLine(caption(s), 60))
	}
	if len(r.Left) > 0 {
		fmt.Fprintln(w, "left alone:")
	}
	for _, l := range r.Left {
		fmt.Fprintf(w, "  %s\n", cell(l))
	}
	return nil
}

func (p *program) sessionsArchive() *cobra.Command {
	o, f := &change{verb: "archive", done: "archived", request: &controlv1.ChangeSessionsRequest{}, call: controlv1.SessionsClient.Archive}, &sessionFilter{}
	c := &cobra.Command{
		Use:   "archive [SESSION…]",
		Short: "Hide sessions from lists, or show them again",
		Example: `  hermes-supervisor sessions archive latest
  hermes-supervisor sessions archive --source cron --older-than 30d --dry-run
  hermes-supervisor sessions archive --undo 20260101_101010_ab12cd34`,
		Args:              between(0, 1000, ""),
		ValidArgsFunction: p.completeSession,
		RunE: func(c *cobra.Command, args []string) (err error) {
			o.request.Sessions = args
			if o.request.Undo {
				o.done = "shown again"
			}
			if o.request.Filter, err = f.read(c, time.Now()); err != nil {
				return err
			}
			return p.change(c.Context(), o)
		},
	}
	c.Flags().BoolVar(&o.request.Undo, "undo", false, "show them again")
	c.Flags().BoolVar(&o.request.DryRun, "dry-run", false, "only say which")
	f.flags(c)
	return p.withOutput(c)
}

func (p *program) sessionsDelete() *cobra.Command {
	o := &change{verb: "delete", done: "deleted", request: &controlv1.ChangeSessionsRequest{}, call: controlv1.SessionsClient.Delete, ask: true}
	c := &cobra.Command{
		Use:   "delete SESSION…",
		Short: "Delete sessions for good",
		Long: `Delete removes sessions with their messages, and those that they delegated to. Branches and continuations stay. A session with
a running turn is refused.`,
		Example: `  hermes-supervisor sessions delete 20260101_101010_ab12cd34
  hermes-supervisor sessions delete --yes "Old plans"`,
		Args:              between(1, 1000, "the sessions to delete"),
		ValidArgsFunction: p.completeSession,
		RunE: func(c *cobra.Command, args []string) error {
			o.request.Sessions = args
			return p.change(c.Context(), o)
		},
	}
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&o.request.DryRun, "dry-run", false, "only say which")
	return p.withOutput(c)
}

func (p *program) sessionsPrune() *cobra.Command {
	o, f := &change{verb: "delete", done: "deleted", request: &controlv1.ChangeSessionsRequest{}, call: controlv1.SessionsClient.Prune, ask: true}, &sessionFilter{}
	r := o.request
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete sessions that have ended and are old",
		Long: `Prune deletes sessions that have ended: those without activity for 90 days, or those that the flags select. Pinned and archived
ones stay, sessions that continue each other go together. It refuses while other processes have the store open.`,
		Example: `  hermes-supervisor sessions prune --dry-run
  hermes-supervisor sessions prune --older-than 30d --source cron --yes`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if r.Filter, err = f.read(c, time.Now()); err != nil {
				return err
			}
			return p.change(c.Context(), o)
		},
	}
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "only say which")
	c.Flags().BoolVar(&r.Force, "force", false, "although other processes have the store open")
	c.Flags().BoolVar(&r.IncludeArchived, "include-archived", false, "archived ones too")
	c.Flags().BoolVar(&r.IncludePinned, "include-pinned", false, "pinned ones too")
	c.Flags().BoolVar(&r.NeverActive, "never-active", false, "sessions of chats in which nothing was ever said, open or not (default: 30 days old)")
	f.flags(c)
	return p.withOutput(c)
}
