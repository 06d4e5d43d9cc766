package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

func (p *program) init() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:   "init",
		Short: "Make a home with commented configuration files",
		Long: `Init makes the home folder (only for you), with config.yaml, .env for secrets and SOUL.md, which says who the agent is.
Files that are there are left as they are. A home needs no init to run: all files are optional.`,
		Example: `  hermes-supervisor init
  hermes-supervisor --home ~/second init`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			home, err := p.resolvedHome()
			if err != nil {
				return err
			}
			files, err := config.Init(home)
			if err != nil {
				return err
			}
			if p.output == outputJSON {
				return p.json(initReport(home, files))
			}
			for _, f := range files {
				what := "kept"
				if f.Created {
					what = "created"
				}
				fmt.Fprintf(p.out, "%-8s%s\n", what, f.Path)
			}
			_, err = fmt.Fprintf(p.out, "next: %s --foreground-chat\n", p.startLine())
			return err
		},
	})
}

type initDoc struct {
	Home  string        `json:"home"`
	Files []initFileDoc `json:"files"`
}

type initFileDoc struct {
	Path    string `json:"path"`
	Created bool   `json:"created"`
}

func initReport(home string, files []config.File) initDoc {
	d := initDoc{Home: home}
	for _, f := range files {
		d.Files = append(d.Files, initFileDoc(f))
	}
	return d
}
