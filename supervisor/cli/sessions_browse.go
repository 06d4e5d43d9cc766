package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func (p *program) sessionsBrowse() *cobra.Command {
	r := &controlv1.ListSessionsRequest{Filter: &controlv1.SessionFilter{}}
	c := &cobra.Command{
		Use:   "browse",
		Short: "Choose a session and go on with it",
		Long: `Browse lists sessions with numbers: a number opens one in the chat, d and a number deletes it, any other text leaves those
in which it occurs. Where the output is no terminal it is a list alone. Opening one needs a running supervisor.`,
		Example: "  hermes-supervisor sessions browse --source terminal",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			chosen := ""
			err := p.onSessions(c.Context(), func(client controlv1.SessionsClient) error {
				list, err := client.List(c.Context(), r)
				if err != nil {
					return err
				}
				if !isTerminal(p.out) || p.output == outputJSON || len(list.Sessions) == 0 {
					return p.print(list, func(w io.Writer) error { return sessionTable(w, list, r.Limit) })
				}
				b := &browser{program: p, client: client, list: list.Sessions}
				chosen, err = b.choose(c.Context())
				return err
			})
			if err != nil || chosen == "" {
				return err
			}
			return p.talk(c.Context(), chatOptions{session: chosen})
		},
	}
	c.Flags().Uint32VarP(&r.Limit, "limit", "n", 500, "at most so many")
	c.Flags().StringVar(&r.Filter.Source, "source", "", "only sessions of this `platform`")
	return p.withOutput(c)
}

// A browser lets a person choose among sessions.
type browser struct {
	*program
	client controlv1.SessionsClient
	list   []*controlv1.SessionInfo
	text   string // that must occur, "" for all
}

// choose returns the session that a person wants to open, "" if none.
func (b *browser) choose(ctx context.Context) (id string, err error) {
	for {
		shown := b.shown()
		if err := b.table(shown); err != nil {
			return "", err
		}
		fmt.Fprint(b.err, "number to open, d NUMBER to delete, text to look for, nothing to leave: ")
		answer := b.readLine()
		number, remove := strings.CutPrefix(answer, "d ")
		n, nerr := strconv.Atoi(strings.TrimSpace(number))
		switch {
		case answer == "" && b.text == "":
			return "", nil
		case answer == "":
			b.text = ""
		case nerr != nil:
			b.text = answer
		case n < 1 || n > len(shown):
			fmt.Fprintf(b.err, "there is no %d\n", n)
		case remove:
			if err := b.remove(ctx, shown[n-1]); err != nil {
				return "", err
			}
		default:
			return shown[n-1].Id, nil
		}
	}
}

// shown are the sessions in which the text occurs.
func (b *browser) shown() []*controlv1.SessionInfo {
	text := strings.ToLower(b.text)
	return slices.DeleteFunc(slices.Clone(b.list), func(s *controlv1.SessionInfo) bool {
		return !strings.Contains(strings.ToLower(strings.Join([]string{s.Title, s.Preview, s.Source, s.Id}, "\n")), text)
	})
}

func (b *browser) table(shown []*controlv1.SessionInfo) error {
	if len(shown) == 0 {
		_, err := fmt.Fprintln(b.out, "nothing found")
		return err
	}
	lines := make([][]string, len(shown))
	for i, s := range shown {
		lines[i] = []string{strconv.Itoa(i + 1), oneLine(caption(s), 60), s.Source, date(int64(s.LastActive))}
	}
	return rows(b.out, "NUMBER | SESSION | SOURCE | LAST ACTIVE", lines)
}

// remove deletes a session after a question. A refusal is told and ends nothing.
func (b *browser) remove(ctx context.Context, s *controlv1.SessionInfo) error {
	if !b.confirm(fmt.Sprintf("delete %q for good?", oneLine(caption(s), 60))) {
		return nil
	}
	gone, err := b.client.Delete(ctx, &controlv1.ChangeSessionsRequest{Sessions: []string{s.Id}})
	if err != nil {
		b.printError(err)
		return ctx.Err()
	}
	b.list = slices.DeleteFunc(b.list, func(o *controlv1.SessionInfo) bool {
		return slices.ContainsFunc(gone.Sessions, func(g *controlv1.SessionInfo) bool { return g.Id == o.Id })
	})
	return nil
}
