package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/control"
)

func (p *program) kanban() *cobra.Command {
	return group(&cobra.Command{
		Use:   "kanban",
		Short: "Look at and change the boards of the running supervisor",
		Long:  "Kanban works on the boards through the running supervisor, which alone opens their files.",
		Example: `  hermes-supervisor kanban create "Water the plants" --subscribe
  hermes-supervisor kanban list
  hermes-supervisor kanban complete t_1a2b3c "all of them"`,
	}, p.kanbanList(), p.kanbanShow(), p.kanbanCreate(), p.kanbanMove("complete", "done", "Finish a task", "SUMMARY", 0),
		p.kanbanMove("block", "blocked", "Say that a task cannot go on, and why", "REASON", 1),
		p.kanbanMove("unblock", "ready", "Let a blocked task go on", "", 0),
		p.kanbanMove("archive", "archived", "Put a task away", "", 0), p.kanbanSubscribe(), p.kanbanStats())
}

// boards runs f with a client of the running supervisor.
func (p *program) boards(ctx context.Context, f func(hostv1.BoardsClient) error) error {
	return p.connected(ctx, func(conn grpc.ClientConnInterface) error { return f(hostv1.NewBoardsClient(conn)) })
}

func boardFlag(c *cobra.Command, board *string) *cobra.Command {
	c.Flags().StringVar(board, "board", "", "`slug` of the board (default: the default board)")
	return c
}

func (p *program) kanbanList() *cobra.Command {
	r := &hostv1.ListTasksRequest{}
	c := &cobra.Command{
		Use:     "list",
		Short:   "List tasks",
		Example: "  hermes-supervisor kanban list --status ready",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.boards(c.Context(), func(client hostv1.BoardsClient) error {
				list, err := client.ListTasks(c.Context(), r)
				if err != nil {
					return err
				}
				return p.print(list, func(w io.Writer) error { return taskTable(w, list.Tasks) })
			})
		},
	}
	c.Flags().StringVar(&r.Status, "status", "", "only tasks in this `status` (default: all but archived)")
	c.Flags().Uint32VarP(&r.Limit, "limit", "n", 100, "at most so many")
	return p.withOutput(boardFlag(c, &r.Board))
}

func taskTable(w io.Writer, tasks []*hostv1.Task) error {
	if len(tasks) == 0 {
		_, err := fmt.Fprintln(w, "no tasks")
		return err
	}
	lines := make([][]string, len(tasks))
	for i, t := range tasks {
		lines[i] = []string{t.Id, t.Status, t.Assignee, date(t.CreatedAt), oneLine(t.Title, 80)}
	}
	return rows(w, "TASK | STATUS | ASSIGNEE | CREATED | TITLE", lines)
}

func date(unix int64) string {
	if unix == 0 {
		return ""
	}
	return time.Unix(unix, 0).Format("2006-01-02 15:04")
}

func (p *program) kanbanShow() *cobra.Command {
	r := &hostv1.GetTaskRequest{}
	c := &cobra.Command{
		Use:     "show TASK",
		Short:   "Show one task",
		Example: "  hermes-supervisor kanban show t_1a2b3c",
		Args:    exactly(1, "the id of a task"),
		RunE: func(c *cobra.Command, args []string) error {
			r.Id = args[0]
			return p.boards(c.Context(), func(client hostv1.BoardsClient) error {
				t, err := client.GetTask(c.Context(), r)
				if err != nil {
					return err // names the task
				}
				return p.print(t, func(w io.Writer) error { return taskDetails(w, t) })
			})
		},
	}
	return p.withOutput(boardFlag(c, &r.Board))
}

func taskDetails(w io.Writer, t *hostv1.Task) error {
	list := []string{"task", t.Id, "title", t.Title, "status", t.Status}
	for _, f := range [][2]string{
		{"board", t.Board}, {"assignee", t.Assignee}, {"created by", t.CreatedBy}, {"created", date(t.CreatedAt)},
		{"started", date(t.StartedAt)}, {"completed", date(t.CompletedAt)}, {"after", strings.Join(t.Parents, ", ")}, {"result", t.Result},
	} {
		if f[1] != "" {
			list = append(list, f[0], f[1])
		}
	}
	if err := pairs(w, list...); err != nil {
		return err
	}
	if t.Body != "" {
		_, err := fmt.Fprintf(w, "\n%s\n", printable(t.Body))
		return err
	}
	return nil
}

func (p *program) kanbanCreate() *cobra.Command {
	r := &hostv1.CreateTaskRequest{}
	subscribe := false
	var to hostv1.Subscription
	c := &cobra.Command{
		Use:   "create TITLE",
		Short: "Create a task",
		Example: `  hermes-supervisor kanban create "Water the plants" --body "the big one too"
  hermes-supervisor kanban create "Nightly report" --key report-2026-12-01 --subscribe`,
		Args: exactly(1, "a title"),
		RunE: func(c *cobra.Command, args []string) error {
			r.Title = args[0]
			if subscribe {
				r.Subscribe = &to
			}
			return p.boards(c.Context(), func(client hostv1.BoardsClient) error {
				t, err := client.CreateTask(c.Context(), r)
				if err != nil {
					return fmt.Errorf("create: %w", err)
				}
				return p.print(t, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "created %s (%s)\n", t.Id, t.Status)
					return err
				})
			})
		},
	}
	c.Flags().StringVar(&r.Body, "body", "", "`text` that says more")
	c.Flags().StringVar(&r.Assignee, "assignee", "", "`profile` that works on it")
	c.Flags().Int32Var(&r.Priority, "priority", 0, "higher comes first")
	c.Flags().StringVar(&r.IdempotencyKey, "key", "", "`key` that makes a repeated create return the same task")
	c.Flags().StringSliceVar(&r.Parents, "after", nil, "`tasks` that must be done first")
	c.Flags().BoolVar(&subscribe, "subscribe", false, "tell a chat what becomes of it")
	chatFlags(c, &to)
	r.CreatedBy = "cli"
	return p.withOutput(boardFlag(c, &r.Board))
}

// chatFlags name the chat that is told.
func chatFlags(c *cobra.Command, s *hostv1.Subscription) {
	c.Flags().StringVar(&s.Platform, "platform", control.PlatformTerminal, "`platform` of the chat that is told")
	c.Flags().StringVar(&s.ChatId, "chat", control.DefaultChat, "`id` of the chat that is told")
	c.Flags().StringVar(&s.ThreadId, "thread", "", "`id` of the thread in that chat")
}

// kanbanMove is a command that moves a task to a status, with a text that may have to be there.
func (p *program) kanbanMove(name, status, short, text string, textNeeded int) *cobra.Command {
	r := &hostv1.SetStatusRequest{Status: status}
	use, example, most := name+" TASK", "  hermes-supervisor kanban "+name+" t_1a2b3c", 1
	what := "the id of a task"
	switch {
	case text != "" && textNeeded > 0:
		use, example, most, what = use+" "+text, example+` "waits for the key"`, 2, "the id of a task and a "+strings.ToLower(text)
	case text != "":
		use, example, most = use+" ["+text+"]", example+` "all of them"`, 2
	}
	c := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: between(1+textNeeded, most, what),
		RunE: func(c *cobra.Command, args []string) error {
			r.Id = args[0]
			if len(args) == 2 {
				r.Summary = args[1]
			}
			return p.boards(c.Context(), func(client hostv1.BoardsClient) error {
				if name == "unblock" {
					if err := onlyBlocked(c.Context(), client, r); err != nil {
						return err
					}
				}
				t, err := client.SetStatus(c.Context(), r)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return p.print(t, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s is %s\n", t.Id, t.Status)
					return err
				})
			})
		},
	}
	return p.withOutput(boardFlag(c, &r.Board))
}

// onlyBlocked refuses to unblock a task that is not blocked: one that is done would be opened again.
func onlyBlocked(ctx context.Context, client hostv1.BoardsClient, r *hostv1.SetStatusRequest) error {
	t, err := client.GetTask(ctx, &hostv1.GetTaskRequest{Board: r.Board, Id: r.Id})
	if err != nil {
		return fmt.Errorf("unblock: %w", err)
	}
	if t.Status != "blocked" {
		return fmt.Errorf("unblock %s: %w: it is %s, not blocked", r.Id, ipc.ErrRefused, t.Status)
	}
	return nil
}

func (p *program) kanbanSubscribe() *cobra.Command {
	s := &hostv1.Subscription{}
	c := &cobra.Command{
		Use:     "subscribe TASK",
		Short:   "Tell a chat what becomes of a task",
		Example: "  hermes-supervisor kanban subscribe t_1a2b3c",
		Args:    exactly(1, "the id of a task"),
		RunE: func(c *cobra.Command, args []string) error {
			s.TaskId = args[0]
			return p.boards(c.Context(), func(client hostv1.BoardsClient) error {
				if _, err := client.Subscribe(c.Context(), &hostv1.SubscribeRequest{Subscription: s}); err != nil {
					return fmt.Errorf("subscribe: %w", err)
				}
				return p.print(s, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s %s is told about %s\n", s.Platform, s.ChatId, s.TaskId)
					return err
				})
			})
		},
	}
	chatFlags(c, s)
	return p.withOutput(boardFlag(c, &s.Board))
}
