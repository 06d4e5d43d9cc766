package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

// toFile writes to stdout, or to a file that is there when it is whole.
func (p *program) toFile(path string, force bool, write func(io.Writer) error) error {
	if path == "-" {
		return write(p.out)
	}
	if _, err := os.Lstat(path); err == nil && !force {
		return fmt.Errorf("%s is there already\nreplace it with --force, or name another file", path)
	}
	if err := writeWhole(path, write); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.err, "wrote %s\n", path)
	return err
}

// writeWhole writes a file that is there when it is whole.
func writeWhole(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.part")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = write(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (p *program) sessionsImport() *cobra.Command {
	dry := false
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Take sessions from lines of JSON",
		Long: `Import stores the sessions that export, or Hermes Agent's own export, has written; - reads stdin. All lines are checked first:
if one is wrong it is named, and nothing is imported. A session that is there already is left alone, so an import that was
cut short is simply made again.`,
		Example: `  hermes-supervisor sessions import old.jsonl --dry-run
  ssh other hermes-supervisor sessions export --all | hermes-supervisor sessions import -`,
		Args: exactly(1, "a file, or - for stdin"),
		RunE: func(c *cobra.Command, args []string) error {
			f, tidy, err := p.importFile(args[0])
			if err != nil {
				return err
			}
			defer tidy()
			n, messages := 0, 0
			err = store.ReadImport(f, func(i store.Imported) error { n++; messages += i.Messages; return nil })
			if err != nil {
				return fmt.Errorf("%s, %w\nnothing was imported", args[0], err)
			}
			if dry {
				r := &controlv1.ImportSessionsResponse{Imported: int64(n), Messages: int64(messages)}
				return p.print(r, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s with %s, all can be read\n", wording.Count(n, "session", "sessions"), wording.Count(messages, "message", "messages"))
					return err
				})
			}
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return err
			}
			return p.onStore(c.Context(), true, store.Options{}, func(client controlv1.SessionsClient) error { return p.send(c.Context(), client, f) })
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only check every line")
	return p.withOutput(c)
}

// importFile opens what is imported; stdin is kept in a file first, because it is read twice.
func (p *program) importFile(path string) (*os.File, func(), error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, err
		}
		return f, func() { _ = f.Close() }, nil
	}
	f, err := os.CreateTemp("", "hermes-import-*.jsonl")
	if err != nil {
		return nil, nil, err
	}
	tidy := func() { _ = f.Close(); _ = os.Remove(f.Name()) }
	if _, err = io.Copy(f, p.in); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		tidy()
		return nil, nil, fmt.Errorf("keep stdin in %s: %w", f.Name(), err)
	}
	return f, tidy, nil
}

// send streams the file to the service.
func (p *program) send(ctx context.Context, client controlv1.SessionsClient, f io.Reader) error {
	out, err := client.Import(ctx)
	if err != nil {
		return err
	}
	buffer := make([]byte, 256<<10)
	for {
		n, err := f.Read(buffer)
		if n > 0 && out.Send(&controlv1.SessionChunk{Data: buffer[:n]}) != nil {
			break // CloseAndRecv has the reason
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	r, err := out.CloseAndRecv()
	if err != nil {
		return err
	}
	return p.print(r, func(w io.Writer) error {
		fmt.Fprintf(w, "imported %s with %s\n", wording.Count(r.Imported, "session", "sessions"), wording.Count(r.Messages, "message", "messages"))
		for _, l := range r.Left {
			fmt.Fprintf(w, "  %s\n", cell(l))
		}
		return nil
	})
}
