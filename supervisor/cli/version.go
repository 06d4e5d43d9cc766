package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

func (p *program) version() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  hermes-supervisor version -o json",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			if p.output == outputJSON {
				return p.json(struct {
					Version  string `json:"version"`
					Protocol int    `json:"protocol"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{ipc.Version(), ipc.ProtocolVersion, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(p.out, "hermes-supervisor %s (%s, %s/%s)\n", ipc.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	})
}
