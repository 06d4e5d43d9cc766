package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func (p *program) ctl() *cobra.Command {
	return group(&cobra.Command{
		Use:   "ctl",
		Short: "Look at and steer the running supervisor",
		Example: `  hermes-supervisor ctl status
  hermes-supervisor ctl workers -o json
  hermes-supervisor ctl logs -f agent-1
  hermes-supervisor ctl restart tools`,
	}, p.ctlStatus(), p.ctlWorkers(), p.ctlRestart(), p.ctlStop(), p.ctlStart(), p.ctlLogs(), p.ctlEvents(), p.ctlTimeline(), p.ctlFds(),
		p.ctlTop(), p.ctlMem(), p.ctlDrain(), p.ctlResume(), p.ctlReload(),
		p.ctlWatch(), p.ctlMetrics(), p.ctlProfile(), p.ctlPlugins())
}

// control runs f with a client of the running supervisor.
func (p *program) control(ctx context.Context, f func(controlv1.ControlClient) error) error {
	return p.connected(ctx, func(conn grpc.ClientConnInterface) error { return f(controlv1.NewControlClient(conn)) })
}

// completeWorkers offers the names of the running supervisor's workers.
func (p *program) completeWorkers(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	_ = p.control(c.Context(), func(client controlv1.ControlClient) error {
		r, err := client.Status(c.Context(), &controlv1.StatusRequest{})
		for _, w := range r.GetWorkers() {
			if strings.HasPrefix(w.Name, word) {
				names = append(names, w.Name)
			}
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeProcesses offers the workers and the supervisor itself.
func (p *program) completeProcesses(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	names, directive := p.completeWorkers(c, args, word)
	if len(args) == 0 && strings.HasPrefix(supervisorName, word) {
		names = append(names, supervisorName)
	}
	return names, directive
}
