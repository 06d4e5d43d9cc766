package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

func (p *program) config() *cobra.Command {
	return group(&cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration",
		Example: `  hermes-supervisor config check
  hermes-supervisor config show -o json
  $EDITOR "$(hermes-supervisor config path)"`,
	}, p.configCheck(), p.configShow(), p.configPath())
}

// checkReport is what `config check -o json` prints.
type checkReport struct {
	OK       bool      `json:"ok"`
	Path     string    `json:"path"`
	Problems []problem `json:"problems"`
	Warnings []string  `json:"warnings"`
	Unused   []string  `json:"unused"`
	Model    string    `json:"model,omitempty"` // which one would answer, and why
}

type problem struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Key  string `json:"key"`
	Text string `json:"text"`
}

func (p *program) configCheck() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:   "check",
		Short: "Check config.yaml and .env; exit with 78 if something is wrong",
		Long: `Check reads the configuration as run would, and prints every problem with its line. Keys of Hermes Agent that have no
effect here are listed, so that nobody waits for them to have one.`,
		Example: "  hermes-supervisor config check && systemctl restart hermes-supervisor",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := p.load()
			var bad *config.Error
			if err != nil && !errors.As(err, &bad) {
				return err
			}
			if bad == nil {
				loaded.Resolve(c.Context()) // a provider may have no key
			}
			if p.output == outputJSON {
				return p.checkJSON(loaded, bad)
			}
			if bad != nil {
				return bad
			}
			return checkText(forPeople(p.out), loaded)
		},
	})
}

func checkText(w io.Writer, c *config.Config) error {
	if _, err := os.Stat(c.Path); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w, "%s is not there, which is fine: defaults are in effect\n", c.Path)
	} else {
		fmt.Fprintf(w, "%s is fine\n", c.Path)
	}
	for _, warning := range c.Warnings {
		fmt.Fprintf(w, "warning: %s\n", printable(warning))
	}
	if len(c.Unused) > 0 {
		fmt.Fprintf(w, "without effect here: %s\n", printable(strings.Join(c.Unused, ", ")))
	}
	_, err := fmt.Fprintf(w, "model: %s\n", printable(modelLine(c.Model)))
	return err
}

func modelLine(m config.Model) string {
	text := m.Provider
	if m.Default != "" && m.Default != m.Provider {
		text += " " + m.Default
	}
	return text + " (" + m.Reason + ")"
}

func (p *program) checkJSON(c *config.Config, bad *config.Error) error {
	r := checkReport{OK: bad == nil, Problems: []problem{}, Warnings: []string{}, Unused: []string{}}
	home, _ := p.resolvedHome()
	r.Path = home + "/" + config.FileName
	if bad != nil {
		for _, b := range bad.Problems {
			r.Problems = append(r.Problems, problem(b))
		}
	} else {
		r.Warnings = append(r.Warnings, c.Warnings...)
		r.Unused = append(r.Unused, c.Unused...)
		r.Model = modelLine(c.Model)
	}
	if err := p.json(r); err != nil {
		return err
	}
	if bad != nil {
		return silentError{exitCode(bad)}
	}
	return nil
}

// json writes a document that is not a message.
func (p *program) json(v any) error {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (p *program) configShow() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "show",
		Short:   "Show the configuration in effect, without secrets",
		Long:    "Show prints every key with the value in effect, defaults among them, and which model would answer. Secrets are listed by\nname only.",
		Example: "  hermes-supervisor config show",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := p.load()
			if err != nil {
				return err
			}
			loaded.Resolve(c.Context())
			text, err := loaded.YAML()
			if p.output == outputJSON {
				text, err = loaded.JSON()
				text = append(text, '\n')
			}
			if err != nil {
				return err
			}
			_, err = p.out.Write(text)
			return err
		},
	})
}

func (p *program) configPath() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "path",
		Short:   "Print where config.yaml is",
		Example: `  $EDITOR "$(hermes-supervisor config path)"`,
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			home, err := p.resolvedHome()
			if err != nil {
				return err
			}
			path := home + "/" + config.FileName
			if p.output == outputJSON {
				return p.json(map[string]string{"path": path, "home": home})
			}
			_, err = fmt.Fprintln(p.out, path)
			return err
		},
	})
}
