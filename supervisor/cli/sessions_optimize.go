package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

func (p *program) sessionsOptimize() *cobra.Command {
	var force, dryRun bool
	c := &cobra.Command{
		Use:   "optimize",
		Short: "Make the store smaller and searching in it faster",
		Long: `Optimize merges the search index and rewrites the file without what is empty in it. While the supervisor runs only the
index is merged, in steps that hold nobody up; stop it to have the file rewritten as well.`,
		Example: "  hermes-supervisor sessions optimize",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			path, home, err := p.socket()
			if err != nil {
				return err
			}
			if err := answers(c.Context(), path); !homeInRest(err) {
				return p.optimizeRunning(c.Context(), home, dryRun)
			}
			if dryRun {
				return p.wouldRewrite(c.Context(), home)
			}
			return p.rewriting(c.Context(), "optimize", force, true, func(s *store.State) (string, error) {
				_, err := s.Optimize(c.Context())
				return "was merged", err
			})
		},
	}
	rewriteFlags(c, &force, &dryRun)
	return p.withOutput(c)
}

func rewriteFlags(c *cobra.Command, force, dryRun *bool) {
	c.Flags().BoolVar(force, "force", false, "go ahead although another program has the store open")
	c.Flags().BoolVar(dryRun, "dry-run", false, "only say what would be done")
}

// rewrite is the document of `sessions optimize` and `sessions optimize-storage`.
type rewrite struct {
	Path      string `json:"path"`
	DryRun    bool   `json:"dry_run"`
	Rewritten bool   `json:"rewritten"` // the file, not only its index
	Index     string `json:"index"`     // what became of the search index
	Bytes     int64  `json:"bytes"`
	Before    int64  `json:"bytes_before"`
	Free      int64  `json:"free_bytes"` // that rewriting would give back
}

// tell prints a rewrite, text being what people read.
func (p *program) tell(r rewrite, text string) error {
	if p.output == outputJSON {
		return p.printJSON(r)
	}
	_, err := fmt.Fprintln(p.out, text)
	return err
}

func (p *program) optimizeRunning(ctx context.Context, home string, dryRun bool) error {
	r := rewrite{Path: filepath.Join(home, stateFile), DryRun: dryRun, Index: "merged"}
	if dryRun {
		return p.tell(r, "would merge the search index through the running supervisor; the file is rewritten only while it is stopped")
	}
	return p.connected(ctx, func(conn grpc.ClientConnInterface) error {
		done, err := controlv1.NewMaintenanceClient(conn).Optimize(ctx, &controlv1.OptimizeStoreRequest{})
		if err != nil {
			return err
		}
		return p.tell(r, fmt.Sprintf("merged the search index in %s; to have the file rewritten as well, stop the supervisor first",
			wording.Count(done.Steps, "step", "steps")))
	})
}

func (p *program) wouldRewrite(ctx context.Context, home string) error {
	path := filepath.Join(home, stateFile)
	i, err := store.Inspect(ctx, path)
	if err != nil {
		return err
	}
	return p.tell(rewrite{Path: path, DryRun: true, Bytes: i.Bytes, Before: i.Bytes, Free: i.FreeBytes},
		fmt.Sprintf("would rewrite %s: %s, of which %s are empty", path, size(i.Bytes), or(size(i.FreeBytes), "0 KiB")))
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// rewriting opens the store of a home in rest, lets f work on it and rewrites the file. f says what became of the index.
func (p *program) rewriting(ctx context.Context, what string, force, vacuum bool, f func(*store.State) (string, error)) error {
	return p.atRest(ctx, what, force, func(home string) error {
		r := rewrite{Path: filepath.Join(home, stateFile), Rewritten: vacuum}
		before, err := os.Stat(r.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		// The room that a rewrite needs is looked for on the disk of the home, not where temporary files are: that is often memory.
		if err := os.Setenv("SQLITE_TMPDIR", home); err != nil {
			return err
		}
		log := hclog.New(&hclog.LoggerOptions{Name: "store", Output: p.err, Level: hclog.Error})
		s, err := store.OpenState(ctx, r.Path, store.Options{Log: log, Readers: 1, Rollback: rollback(home)})
		if err != nil {
			return err
		}
		r.Index, err = f(s)
		if err == nil && vacuum {
			err = s.Vacuum(ctx)
		}
		if cerr := s.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		after, err := os.Stat(r.Path)
		if err != nil {
			return err
		}
		r.Bytes, r.Before = after.Size(), before.Size()
		return p.tell(r, fmt.Sprintf("the search index %s\n%s: %s, before %s", r.Index, r.Path, size(r.Bytes), size(r.Before)))
	})
}

func (p *program) sessionsOptimizeStorage() *cobra.Command {
	var force, dryRun, noVacuum, sure bool
	c := &cobra.Command{
		Use:   "optimize-storage",
		Short: "Give an old store the search index that keeps no second copy of each text",
		Long: `Optimize-storage builds the search index again in the layout of newer versions of Hermes, if the file has the old one,
and rewrites the file. It may be interrupted at any time: the next start goes on with it. While the supervisor runs only the
index is built, through it, and the room that the old one had is used again; stop it to have the file rewritten as well.

A file of a Hermes before schema 23 keeps its number. Newer versions of Hermes take the layout as their own.`,
		Example: `  hermes-supervisor sessions optimize-storage --dry-run
  hermes-supervisor sessions optimize-storage --yes`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if dryRun {
				home, err := p.resolvedHome()
				if err != nil {
					return err
				}
				return p.wouldRewrite(c.Context(), home)
			}
			if !sure && !p.confirm("build the search index again and rewrite the store?") {
				return declined("nothing was done", "does it")
			}
			path, home, err := p.socket()
			if err != nil {
				return err
			}
			if err := answers(c.Context(), path); !homeInRest(err) {
				return p.convertRunning(c.Context(), home, force)
			}
			return p.rewriting(c.Context(), "optimize-storage", force, !noVacuum, func(s *store.State) (string, error) {
				return p.convert(c.Context(), s)
			})
		},
	}
	rewriteFlags(c, &force, &dryRun)
	c.Flags().BoolVar(&noVacuum, "no-vacuum", false, "leave the file as large as it is")
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	return p.withOutput(c)
}

const (
	indexConverted = "was built in the newest layout"
	indexNewest    = "has the newest layout already"
)

// convert gives the store the newest layout of the index, if it has an older one.
func (p *program) convert(ctx context.Context, s *store.State) (string, error) {
	converted, err := s.ConvertIfLegacy(ctx, p.indexProgress)
	if !converted {
		return indexNewest, err
	}
	return indexConverted, err
}

func (p *program) indexProgress(percent int) { p.progress(fmt.Sprintf("index: %d %%", percent)) }

// convertRunning has the running supervisor do it. If this command is ended the supervisor goes on.
func (p *program) convertRunning(ctx context.Context, home string, force bool) error {
	return p.connected(ctx, func(conn grpc.ClientConnInterface) error {
		in, err := controlv1.NewMaintenanceClient(conn).Convert(ctx, &controlv1.ConvertIndexRequest{Force: force})
		for err == nil {
			var at *controlv1.ConvertIndexProgress
			if at, err = in.Recv(); err != nil {
				break
			}
			if !at.Done {
				p.indexProgress(int(at.Percent))
				continue
			}
			r := rewrite{Path: filepath.Join(home, stateFile), Index: indexNewest}
			if at.Converted {
				r.Index = indexConverted
			}
			return p.tell(r, "the search index "+r.Index+"; to have the file rewritten as well, stop the supervisor first")
		}
		return err
	})
}
