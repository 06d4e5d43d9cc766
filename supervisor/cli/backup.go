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
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

func (p *program) backup() *cobra.Command {
	b := &backupCommand{program: p, keep: 3}
	c := &cobra.Command{
		Use:   "backup",
		Short: "Copy the home into a zip file, or its stores and settings into a snapshot",
		Long: `Backup copies everything of the home that cannot be made again. Databases are copied through SQLite, so a backup may be
made while the supervisor runs, and every message that was acknowledged before it began is in it. In a folder the newest
three stay (--keep), and as many that are incomplete, which push out no whole one; a FILE that is named is the only one.

A file that cannot be read does not cost the rest: it is named, also in the backup, and the exit code is 3. A database that
cannot be read is an error, and no backup is made. Links to folders are not followed; they are named.

With --quick only stores and settings are copied, to state-snapshots/ in the home; the newest 20 stay. Of a database that cannot
be read, which is an error as well, there is nothing in the snapshot then; all else is.`,
		Example: `  hermes-supervisor backup
  hermes-supervisor backup --output /mnt/disk/ --keep 10
  hermes-supervisor backup --dry-run
  hermes-supervisor backup --quick --label before-upgrade`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case b.quick && b.output != "":
				return usageError{errors.New("--quick makes a snapshot in the home; --output is for whole backups")}
			case !b.quick && b.label != "":
				return usageError{errors.New("--label is for --quick")}
			case b.quick && c.Flags().Changed("keep"):
				return usageError{errors.New("--keep is for whole backups; for snapshots there is: hermes-supervisor snapshots prune")}
			case b.keep < 0:
				return usageError{fmt.Errorf("--keep %d: 0 (all) or more", b.keep)}
			}
			return b.run(c.Context())
		},
	}
	c.Flags().BoolVarP(&b.quick, "quick", "q", false, "a snapshot of stores and settings in the home")
	c.Flags().StringVarP(&b.label, "label", "l", "", "`name` of the snapshot")
	c.Flags().StringVar(&b.output, "output", "", "zip `file` or folder (default: ~/hermes-backup-TIME.zip)")
	c.Flags().IntVarP(&b.keep, "keep", "k", b.keep, "how many backups stay in a folder, 0: all")
	c.Flags().BoolVar(&b.dryRun, "dry-run", false, "only list the files")
	return p.withFormat(c, "format")
}

// A backupCommand is one call of `backup`.
type backupCommand struct {
	*program
	quick, dryRun bool
	label, output string
	keep          int
}

func (b *backupCommand) run(ctx context.Context) error {
	if b.dryRun {
		return b.list()
	}
	home, err := b.resolvedHome()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	unlock, err := backup.Lock(home)
	if errors.Is(err, backup.ErrRunning) {
		return usageError{fmt.Errorf("%w; wait for its end", err)}
	}
	if err != nil {
		return err
	}
	defer unlock()
	if b.quick {
		return b.snapshot(ctx)
	}
	return b.whole(ctx)
}

// list says what would be copied.
func (b *backupCommand) list() error {
	home, err := b.resolvedHome()
	if err != nil {
		return err
	}
	var files []backup.File
	var left []backup.LeftOut
	if b.quick {
		files, left = backup.QuickFiles(home)
	} else {
		files, left, err = backup.Files(home)
	}
	if err != nil {
		return err
	}
	if b.program.output == outputJSON {
		return errors.Join(b.printJSON(map[string]any{"dry_run": true, "files": append([]backup.File{}, files...), "left_out": append([]backup.LeftOut{}, left...)}), b.partial(left))
	}
	total := int64(0)
	for _, f := range files {
		fmt.Fprintf(b.out, "%s  %s\n", printable(f.Name), or(size(f.Size), "0 KiB"))
		total += f.Size
	}
	_, err = fmt.Fprintf(b.out, "would copy %s, %s\n", wording.Count(len(files), "file", "files"), or(size(total), "0 KiB"))
	return errors.Join(err, b.partial(left))
}

func (b *backupCommand) snapshot(ctx context.Context) error {
	return b.copying(ctx, func(home string, copyDB backup.Copier) error {
		s, err := backup.Quick(ctx, home, b.label, time.Now(), copyDB)
		_, perr := backup.Prune(home, backup.KeepSnapshots)
		if err != nil && !errors.Is(err, backup.ErrWithoutStore) {
			return errors.Join(err, perr)
		}
		if b.program.output == outputJSON {
			perr = errors.Join(perr, b.printJSON(s))
		} else {
			fmt.Fprintf(b.out, "snapshot %s: %s, %s\n", s.ID, wording.Count(s.FileCount, "file", "files"), size(s.TotalSize))
		}
		left := b.partial(s.LeftOut)
		if err = errors.Join(err, perr); err != nil {
			return err
		}
		return left
	})
}

func (b *backupCommand) whole(ctx context.Context) error {
	dir, file, err := backupPath(b.output)
	if err != nil {
		return err
	}
	return b.copying(ctx, func(home string, copyDB backup.Copier) error {
		made, err := b.zip(ctx, home, dir, file, copyDB)
		if errors.Is(err, os.ErrExist) {
			return usageError{fmt.Errorf("%w; choose a new name", err)}
		}
		if err != nil {
			return err
		}
		removed := []string{}
		if file == "" && b.keep > 0 {
			if removed, err = backup.KeepZips(dir, b.keep); err != nil {
				return err
			}
		}
		if b.program.output == outputJSON {
			return errors.Join(b.printJSON(map[string]any{"path": made.Path, "file_count": made.Files, "total_size": made.Size, "removed": removed,
				"left_out": append([]backup.LeftOut{}, made.LeftOut...), "links": append([]string{}, made.Links...)}), b.partial(made.LeftOut))
		}
		_, err = fmt.Fprintf(b.out, "%s: %s, %s\n", made.Path, wording.Count(made.Files, "file", "files"), size(made.Size))
		for _, old := range removed {
			fmt.Fprintf(b.out, "removed %s\n", old)
		}
		for _, link := range made.Links {
			fmt.Fprintf(b.err, "%s is a link to a folder: neither it nor what it leads to is in the backup\n", printable(link))
		}
		return errors.Join(err, b.partial(made.LeftOut))
	})
}

// zip makes a backup of a name that was given, or in a folder.
func (b *backupCommand) zip(ctx context.Context, home, dir, file string, copyDB backup.Copier) (backup.Zipped, error) {
	if file != "" {
		return backup.Zip(ctx, home, filepath.Join(dir, file), copyDB)
	}
	return backup.ZipInto(ctx, home, dir, time.Now(), copyDB)
}

// partial names what a backup does not hold, and ends the command with a code of its own: what is there can be relied on.
func (b *backupCommand) partial(left []backup.LeftOut) error {
	if len(left) == 0 {
		return nil
	}
	for _, l := range left {
		fmt.Fprintf(b.err, "left out: %s: %s\n", printable(l.Name), printable(l.Reason))
	}
	is, where := "is", "backup"
	if b.dryRun {
		is = "would be"
	}
	if b.quick {
		where = "snapshot"
	}
	fmt.Fprintf(b.err, "%s left out, all else %s in the %s\n", wording.Count(len(left), "file or folder is", "files or folders are"), is, where)
	return silentError{ipc.ExitPartial}
}

// backupPath says in which folder a backup goes, and its file if that was named.
func backupPath(output string) (dir, file string, err error) {
	if output == "" {
		dir, err = os.UserHomeDir()
		return dir, "", err
	}
	path, err := filepath.Abs(output)
	if err != nil {
		return "", "", err
	}
	if info, err := os.Stat(output); strings.HasSuffix(output, "/") || err == nil && info.IsDir() { // also a folder that is made by this
		return path, "", nil
	}
	if !strings.HasSuffix(path, ".zip") {
		path += ".zip"
	}
	return filepath.Dir(path), filepath.Base(path), nil
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
			return snapshotTable(forPeople(p.out), list)
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
		if missing := s.Missing(); len(missing) > 0 {
			note = "without " + strings.Join(missing, ", ")
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
		Long:  "Prune removes snapshots. One that something is missing in does not push out a whole one: of each kind the newest stay.",
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
