package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// operations runs f with a client of the running supervisor's operations.
func (p *program) operations(c *cobra.Command, f func(controlv1.OperationsClient) error) error {
	return p.connected(c.Context(), func(conn grpc.ClientConnInterface) error { return f(controlv1.NewOperationsClient(conn)) })
}

func (p *program) ctlReload() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:   "reload",
		Short: "Read config.yaml and .env again and apply what has changed",
		Long: `Reload applies a changed configuration to the running supervisor, as SIGHUP does. What a worker is given at its
start makes that worker start anew, agents one after the other and each after its turns; the rest holds at once.
A configuration with an error changes nothing: the old one holds, and the error is shown with its line.
It returns when all workers concerned have been replaced.`,
		Example: `  hermes-supervisor ctl reload
  hermes-supervisor config check && hermes-supervisor ctl reload -o json`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			// Looked at here as well, so that the error has its exit code and the supervisor is not bothered.
			if _, err := p.load(); err != nil {
				return fmt.Errorf("%w\nthe supervisor goes on with its old configuration", err)
			}
			return p.operations(c, func(client controlv1.OperationsClient) error {
				r, err := client.Reload(c.Context(), &controlv1.ReloadRequest{})
				if err != nil {
					return fmt.Errorf("reload: %w", err)
				}
				if err := p.print(r, func(w io.Writer) error { return changesTable(w, r.Changes) }); err != nil {
					return err
				}
				return reloadFailed(r.Changes)
			})
		},
	})
}

func changesTable(w io.Writer, changes []*controlv1.Change) error {
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "nothing has changed")
		return err
	}
	lines := make([][]string, len(changes))
	for i, c := range changes {
		lines[i] = []string{c.What, c.Effect, oneLine(c.Detail, maxNote)}
	}
	return rows(w, "WHAT | EFFECT | DETAIL", lines)
}

// reloadFailed makes a worker that did not come back an error of the command.
func reloadFailed(changes []*controlv1.Change) error {
	for _, c := range changes {
		if c.Effect == "failed" {
			return fmt.Errorf("%s: %s", c.What, c.Detail)
		}
	}
	return nil
}

func (p *program) ctlDrain() *cobra.Command {
	wait := false
	c := &cobra.Command{
		Use:   "drain",
		Short: "Give out no turns until resumed; what runs goes on",
		Long: `Drain makes the supervisor quiet without stopping it, before a backup or an upgrade: messages are still taken and
stored, turns that run go on, and no new one begins until "ctl resume". A restart of the supervisor resumes as well.
With --wait it returns when no turn runs any more.`,
		Example: `  hermes-supervisor ctl drain --wait && hermes-supervisor ctl resume`,
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.operations(c, func(client controlv1.OperationsClient) error {
				for {
					// Asked for again and again: it changes nothing and tells how many run.
					r, err := client.Drain(c.Context(), &controlv1.DrainRequest{})
					if err != nil {
						return fmt.Errorf("drain: %w", err)
					}
					if !wait || r.Running == 0 {
						return p.print(r, func(w io.Writer) error {
							_, err := fmt.Fprintf(w, "no new turns, %d still running; undo with: hermes-supervisor ctl resume\n", r.Running)
							return err
						})
					}
					select {
					case <-c.Context().Done():
						return fmt.Errorf("drain: %s, and new ones are held back: %w", wording.Count(r.Running, "turn still runs", "turns still run"), ipc.ErrCancelled)
					case <-time.After(drainedEvery):
					}
				}
			})
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "return when no turn runs any more")
	return p.withOutput(c)
}

// drainedEvery is how often --wait asks. Turns take seconds.
const drainedEvery = 200 * time.Millisecond

func (p *program) ctlResume() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "resume",
		Short:   "Give out turns again after a drain",
		Example: "  hermes-supervisor ctl resume",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.operations(c, func(client controlv1.OperationsClient) error {
				r, err := client.Resume(c.Context(), &controlv1.ResumeRequest{})
				if err != nil {
					return fmt.Errorf("resume: %w", err)
				}
				text := "turns are given out again"
				if !r.WasDrained {
					text = "turns were not held back"
				}
				return p.print(r, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, text)
					return err
				})
			})
		},
	})
}

// adjust makes of a configuration what run was asked for.
func (f runFlags) adjust(c *config.Config) *config.Config {
	if f.noAdapters {
		c.Adapters = nil
	}
	return c
}
