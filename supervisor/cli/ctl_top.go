package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// insteadOfTop is what does without a terminal.
const insteadOfTop = "for one look use hermes-supervisor ctl status, for a stream hermes-supervisor ctl watch"

// drawable says why a picture that moves cannot be shown where the streams lead. It is asked first, so that a pipe is told so
// also where no supervisor runs.
func (p *program) drawable() error {
	if !isTerminal(p.in) || !isTerminal(p.out) {
		return ipc.WithKind(errors.New("top needs a terminal: "+insteadOfTop), ipc.ErrInvalid)
	}
	if name := os.Getenv("TERM"); name == "" || name == "dumb" {
		return ipc.WithKind(fmt.Errorf("top draws a whole screen, which a terminal of TERM=%q cannot: %s", name, insteadOfTop), ipc.ErrInvalid)
	}
	return nil
}

func (p *program) ctlTop() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Watch the workers in this terminal",
		Long: `Top shows workers, descriptors, memory with its last minutes, processor, turns, restarts and verdicts, once a second.
It needs a terminal that can be drawn on; where there is none (a pipe, TERM=dumb), ctl status and ctl watch tell the same.
Without a UTF-8 locale it is drawn in ASCII.
Keys: up and down choose a worker, s sorts, r restarts the chosen one after a yes, q leaves.`,
		Example: "  hermes-supervisor ctl top",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.drawable(); err != nil {
				return err
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
			line := []string{"--socket", socket, "--top"}
			if asciiOnly(os.Getenv) {
				line = append(line, "--ascii")
			}
			return become(terminal, line)
		},
	}
}
