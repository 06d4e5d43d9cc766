package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// errNoTerminal tells a script what to use instead of a picture that moves.
var errNoTerminal = errors.New("top needs a terminal; for one look use: hermes-supervisor ctl status")

func (p *program) ctlTop() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Watch the workers in this terminal",
		Long: `Top shows workers, descriptors, memory with its last minutes, processor, turns, restarts and verdicts, once a second.
Keys: up and down choose a worker, s sorts, r restarts the chosen one after a yes, q leaves.`,
		Example: "  hermes-supervisor ctl top",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			// Asked first: a pipe is told so also where no supervisor runs.
			if !isTerminal(p.in) || !isTerminal(p.out) {
				return &kindError{errNoTerminal, ipc.ErrInvalid}
			}
			terminal, err := p.terminal()
			if err != nil {
				return err
			}
			socket, home, err := p.socket()
			if err != nil {
				return err
			}
			if err := answers(c.Context(), socket); err != nil {
				return p.noSupervisor(home, socket, err)
			}
			return become(terminal, []string{"--socket", socket, "--top"})
		},
	}
}
