package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

func (p *program) backup() *cobra.Command {
	var quick bool
	var label, output string
	c := &cobra.Command{
		Use:   "backup",
		Short: "Copy the home into a zip file, or its stores and settings into a snapshot",
		Long: `Backup copies everything of the home that cannot be made again. Databases are copied through SQLite, so a backup may be
made while the supervisor runs, and every message that was acknowledged before it began is in it.

With --quick only stores and settings are copied, to state-snapshots/ in the home; the newest 20 stay.`,
		Example: `  hermes-supervisor backup
  hermes-supervisor backup --output /mnt/disk/
  hermes-supervisor backup --quick --label before-upgrade`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case quick && output != "":
				return usageError{errors.New("--quick makes a snapshot in the home; --output is for whole backups")}
			case !quick && label != "":
				return usageError{errors.New("--label is for --quick")}
			case quick:
				return p.quickBackup(c.Context(), label)
			}
			return p.wholeBackup(c.Context(), output)
		},
	}
	c.Flags().BoolVarP(&quick, "quick", "q", false, "a snapshot of stores and settings in the home")
	c.Flags().StringVarP(&label, "label", "l", "", "`name` of the snapshot")
	c.Flags().StringVar(&output, "output", "", "zip `file` or folder (default: ~/hermes-backup-TIME.zip)")
	return c
}

func (p *program) quickBackup(ctx context.Context, label string) error {
	return p.copying(ctx, func(home string, copyDB backup.Copier) error {
		s, err := backup.Quick(ctx, home, label, time.Now(), copyDB)
		if err != nil {
			return err
		}
		if _, err := backup.Prune(home, backup.KeepSnapshots); err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "snapshot %s: %d files, %s\n", s.ID, s.FileCount, size(s.TotalSize))
		return err
	})
}

func (p *program) wholeBackup(ctx context.Context, output string) error {
	path, err := backupPath(output)
	if err != nil {
		return err
	}
	return p.copying(ctx, func(home string, copyDB backup.Copier) error {
		files, bytes, err := backup.Zip(ctx, home, path, copyDB)
		if errors.Is(err, os.ErrExist) {
			return usageError{fmt.Errorf("%w; choose a new name", err)}
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "%s: %d files, %s\n", path, files, size(bytes))
		return err
	})
}

func backupPath(output string) (string, error) {
	name := backup.Name(time.Now())
	switch info, err := os.Stat(output); {
	case output == "":
		user, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		output = filepath.Join(user, name)
	case err == nil && info.IsDir():
		output = filepath.Join(output, name)
	case !strings.HasSuffix(output, ".zip"):
		output += ".zip"
	}
	return filepath.Abs(output)
}

func (p *program) restore() *cobra.Command {
	var force, dryRun bool
	c := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Put a backup or a snapshot back into the home",
		Long: `Restore puts the files of a backup (a zip file) or of a snapshot (its id, see "snapshots list") into the home. The
databases in it are checked first. What is replaced is not lost: it becomes a snapshot itself.

No supervisor may run and no program may have a store open. A restore that is killed has either changed nothing or is
finished by the next start.`,
		Example: `  hermes-supervisor restore ~/hermes-backup-2026-12-01-031500.zip
  hermes-supervisor restore 20261201-031500-auto --dry-run`,
		Args: exactly(1, "a backup file or the id of a snapshot"),
		RunE: func(c *cobra.Command, args []string) error {
			home, err := p.resolvedHome()
			if err != nil {
				return err
			}
			source, err := backup.Find(home, args[0])
			if err != nil {
				return &kindError{fmt.Errorf("%w\nsee: hermes-supervisor snapshots list", err), ipc.ErrNotFound}
			}
			if dryRun {
				_, err := fmt.Fprintf(p.out, "would restore %s into %s\n", source, home)
				return err
			}
			return p.restoreFrom(c.Context(), home, source, force)
		},
		ValidArgsFunction: p.completeSnapshots,
	}
	c.Flags().BoolVar(&force, "force", false, "go ahead although another program has a store open")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be restored")
	return c
}

func (p *program) restoreFrom(ctx context.Context, home, source string, force bool) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	return p.atRest(ctx, "restore", force, func(home string) error {
		r, err := backup.Restore(home, source, time.Now(), func(path string) error {
			i, err := store.Inspect(ctx, path)
			if err == nil && len(i.Damage) > 0 {
				err = fmt.Errorf("%s is damaged: %s", filepath.Base(path), i.Damage[0])
			}
			return err
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "restored %d files from %s; what was there is kept as snapshot %s\n", len(r.Files), source, r.Kept)
		return err
	})
}

func (p *program) snapshots() *cobra.Command {
	return group(&cobra.Command{
		Use:   "snapshots",
		Short: "List and remove snapshots of the home",
		Long:  "Snapshots are in state-snapshots/ of the home. The running supervisor makes one a day (supervisor.snapshot_interval).",
		Example: `  hermes-supervisor snapshots list
  hermes-supervisor snapshots prune --keep 3`,
	}, p.snapshotsList(), p.snapshotsPrune())
}

func (p *program) snapshotsList() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "list",
		Short:   "List snapshots, the newest first",
		Example: "  hermes-supervisor snapshots list -o json",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			home, err := p.resolvedHome()
			if err != nil {
				return err
			}
			list, err := backup.List(home)
			if err != nil {
				return err
			}
			if p.output == outputJSON {
				return p.printJSON(map[string]any{"snapshots": append([]backup.Snapshot{}, list...)})
			}
			return snapshotTable(p.out, list)
		},
	})
}

func snapshotTable(w io.Writer, list []backup.Snapshot) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no snapshots")
		return err
	}
	lines := make([][]string, len(list))
	for i, s := range list {
		note := ""
		if len(s.FailedDBs) > 0 {
			note = "without " + strings.Join(s.FailedDBs, ", ")
		}
		lines[i] = []string{s.ID, s.Label, strconv.Itoa(s.FileCount), size(s.TotalSize), note}
	}
	return rows(w, "ID | LABEL | FILES | SIZE | NOTE", lines)
}

func (p *program) snapshotsPrune() *cobra.Command {
	keep, dryRun := backup.KeepSnapshots, false
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove all but the newest snapshots",
		Long:  "Prune removes snapshots. One that is without a store does not count among those that stay.",
		Example: `  hermes-supervisor snapshots prune --keep 3 --dry-run
  hermes-supervisor snapshots prune --keep 3`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			if keep < 0 {
				return usageError{fmt.Errorf("--keep %d: 0 or more", keep)}
			}
			home, err := p.resolvedHome()
			if err != nil {
				return err
			}
			remove, verb := backup.Prune, "removed"
			if dryRun {
				remove, verb = backup.Prunable, "would remove"
			}
			removed, err := remove(home, keep)
			if p.output == outputJSON {
				return errors.Join(err, p.printJSON(map[string]any{"dry_run": dryRun, "removed": append([]backup.Snapshot{}, removed...)}))
			}
			for _, s := range removed {
				fmt.Fprintf(p.out, "%s %s, %s\n", verb, s.ID, size(s.TotalSize))
			}
			if err == nil && len(removed) == 0 {
				_, err = fmt.Fprintln(p.out, "nothing to remove")
			}
			return err
		},
	}
	c.Flags().IntVar(&keep, "keep", keep, "how many stay")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say which")
	return p.withOutput(c)
}

// completeSnapshots offers ids of snapshots, and files.
func (p *program) completeSnapshots(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	home, err := p.resolvedHome()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	list, _ := backup.List(home)
	ids := make([]cobra.Completion, len(list))
	for i, s := range list {
		ids[i] = s.ID
	}
	return ids, cobra.ShellCompDirectiveDefault
}

// printJSON writes a document for programs.
func (p *program) printJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = p.out.Write(append(text, '\n'))
	return err
}
