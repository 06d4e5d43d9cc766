package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// profileKinds are what a Go runtime can tell of itself.
var profileKinds = []string{"heap", "cpu", "goroutine"}

// longestProfile is what a worker measures at most.
const longestProfile = 30 * time.Second

func (p *program) ctlProfile() *cobra.Command {
	seconds, output := 5*time.Second, ""
	c := &cobra.Command{
		Use:   "profile NAME heap|cpu|goroutine",
		Short: "Take a profile of a worker, or of the supervisor",
		Long: `Profile asks the runtime of a worker what holds its memory, where its processor time goes, or what its goroutines do.
The result is for "go tool pprof", goroutines are text. A plugin has profiles if it was made with the SDK in Go.
Without --output it goes into a file of this folder, whose name is printed; - is stdout.`,
		Example: `  hermes-supervisor ctl profile agent-1 heap && go tool pprof -top agent-1-heap.pprof
  hermes-supervisor ctl profile tools cpu --seconds 10s --output tools.pprof
  hermes-supervisor ctl profile supervisor goroutine --output -`,
		Args: exactly(2, "the name of a worker, or supervisor, and heap, cpu or goroutine"),
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return profileKinds, cobra.ShellCompDirectiveNoFileComp
			}
			return p.completeProcesses(c, args, word)
		},
		RunE: func(c *cobra.Command, args []string) error {
			name, kind := args[0], args[1]
			if !slices.Contains(profileKinds, kind) {
				return usageError{fmt.Errorf("profile of kind %q: the kinds are %s", kind, strings.Join(profileKinds, ", "))}
			}
			if seconds <= 0 || seconds > longestProfile {
				return usageError{fmt.Errorf("--seconds %v: up to %v", seconds, longestProfile)}
			}
			if output == "-" && p.output == outputJSON {
				return usageError{errors.New("--output - writes the profile itself to stdout, -o json what was written; give one of the two")}
			}
			return p.operations(c, func(client controlv1.OperationsClient) error {
				r, err := client.Profile(c.Context(), &controlv1.ProfileRequest{Worker: name, Kind: kind, Seconds: seconds.Seconds()})
				if err != nil {
					return fmt.Errorf("profile %s: %w", name, err)
				}
				return p.keepProfile(r, profileDoc{Worker: name, Kind: kind, Format: r.Format, Bytes: len(r.Data), File: output})
			})
		},
	}
	c.Flags().DurationVar(&seconds, "seconds", seconds, "how long a cpu profile measures, at most 30s")
	c.Flags().StringVar(&output, "output", "", "`file` to write; - is stdout")
	return p.withFormat(c, "format")
}

// profileDoc is what `ctl profile -o json` prints of a profile that was written.
type profileDoc struct {
	Worker string `json:"worker"`
	Kind   string `json:"kind"`
	Format string `json:"format"` // pprof or text
	Bytes  int    `json:"bytes"`
	File   string `json:"file"`
}

func (p *program) keepProfile(r *controlv1.ProfileResponse, d profileDoc) error {
	if d.File == "-" {
		_, err := p.out.Write(r.Data)
		return err
	}
	if d.File == "" {
		d.File = d.Worker + "-" + d.Kind + ".pprof"
		if d.Format == "text" {
			d.File = d.Worker + "-" + d.Kind + ".txt"
		}
	}
	if err := os.WriteFile(d.File, r.Data, 0o600); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	if p.output == outputJSON {
		return p.json(d)
	}
	_, err := fmt.Fprintln(p.out, printable(d.File))
	return err
}

// ctlPlugins is `plugins list`, where one looks for what runs.
func (p *program) ctlPlugins() *cobra.Command {
	c := p.pluginsList()
	c.Use, c.Short = "plugins", "Show the plugins with their state and tools"
	c.Example = "  hermes-supervisor ctl plugins -o json"
	return c
}
