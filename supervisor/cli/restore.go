package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

func (p *program) restore() *cobra.Command {
	var force, dryRun bool
	c := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Put a backup or a snapshot back into the home",
		Long: `Restore puts the files of a backup (a zip file) or of a snapshot (its id, see "snapshots list") into the home. The
databases in it are checked first. What is replaced is not lost: it becomes a snapshot itself. Links in the home are not
followed: one that is where something of the backup belongs is replaced, and named. So is what an incomplete backup misses, and
what is in it but tells of processes: both stay as they are.

No supervisor may run and no program may have a store open. A restore that is killed has either changed nothing or is
finished by the next start.`,
		Example: `  hermes-supervisor restore ~/hermes-backup-2026-12-01-031500.zip --dry-run
  hermes-supervisor restore 20261201-031500-auto`,
		Args: exactly(1, "a backup file or the id of a snapshot"),
		RunE: func(c *cobra.Command, args []string) error {
			home, err := p.resolvedHome()
			if err != nil {
				return err
			}
			source, err := backup.Find(home, args[0])
			if err != nil {
				return ipc.WithKind(fmt.Errorf("%w\nsee: hermes-supervisor snapshots list", err), ipc.ErrNotFound)
			}
			if dryRun {
				return p.restorable(c.Context(), home, source)
			}
			return p.restoreFrom(c.Context(), home, source, force)
		},
		ValidArgsFunction: p.completeSnapshots,
	}
	c.Flags().BoolVar(&force, "force", false, "go ahead although another program has a store open")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only check it and say what would be restored")
	return p.withOutput(c)
}

// restored is the document of `restore`.
type restored struct {
	backup.Restored
	DryRun bool          `json:"dry_run"`
	Stores []storeChange `json:"stores"`
}

// A storeChange says what of a store is in a backup and what is in the home.
type storeChange struct {
	Store       string `json:"store"`
	Sessions    int64  `json:"sessions"`
	Messages    int64  `json:"messages"`
	SessionsWas int64  `json:"sessions_before"`
	MessagesWas int64  `json:"messages_before"`
}

// A comparison checks the databases of a backup and compares them with those of the home.
type comparison struct {
	ctx    context.Context
	home   string
	stores []storeChange
}

// check is backup.Check. dir is where the backup is unpacked.
func (c *comparison) check(name, path string) error {
	i, err := store.Inspect(c.ctx, path)
	if err != nil {
		return err
	}
	if len(i.Damage) > 0 {
		return fmt.Errorf("%s is damaged: %s", name, i.Damage[0])
	}
	if name != stateFile {
		return nil
	}
	change := storeChange{Store: name, Sessions: i.Sessions, Messages: i.Messages}
	if _, err := os.Stat(filepath.Join(c.home, name)); err == nil {
		// What is there may be damaged: that is why it is replaced.
		change.SessionsWas, change.MessagesWas, _ = store.Tally(c.ctx, filepath.Join(c.home, name))
	}
	c.stores = append(c.stores, change)
	return nil
}

// restorable says what a restore would do, after the same checks. It may be asked while a supervisor runs.
func (p *program) restorable(ctx context.Context, home, source string) error {
	c := &comparison{ctx: ctx, home: home}
	r, err := backup.Plan(home, source, c.check)
	if err != nil {
		return err
	}
	return p.tellRestored(restored{Restored: r, DryRun: true, Stores: c.stores}, home)
}

func (p *program) restoreFrom(ctx context.Context, home, source string, force bool) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	return p.atRest(ctx, "restore", force, func(home string) error {
		if _, err := backup.Resume(home); err != nil {
			return err
		}
		c := &comparison{ctx: ctx, home: home}
		r, err := backup.Restore(home, source, time.Now(), c.check)
		if err != nil {
			return err
		}
		return p.tellRestored(restored{Restored: r, Stores: c.stores}, home)
	})
}

func (p *program) tellRestored(r restored, home string) error {
	if p.output == outputJSON {
		r.Files, r.Skipped, r.LeftOut = append([]string{}, r.Files...), append([]string{}, r.Skipped...), append([]backup.LeftOut{}, r.LeftOut...)
		r.Stores, r.Links = append([]storeChange{}, r.Stores...), append([]backup.Link{}, r.Links...)
		return p.printJSON(r)
	}
	for _, s := range r.Stores {
		tellChange(forPeople(p.out), s, r.DryRun)
	}
	for _, l := range r.Links {
		tellLink(p.err, l, r.DryRun)
	}
	tellOthers(p.err, r.Contents)
	if r.DryRun {
		for _, f := range r.Files {
			fmt.Fprintln(p.out, printable(f))
		}
		_, err := fmt.Fprintf(p.out, "would restore %s of %s into %s\n", wording.Count(len(r.Files), "file", "files"), r.Source, home)
		return err
	}
	_, err := fmt.Fprintf(p.out, "restored %s from %s; what was there is kept as snapshot %s\n", wording.Count(len(r.Files), "file", "files"), r.Source, r.Kept)
	return err
}

// tellChange says above all what a restore takes away.
func tellChange(w io.Writer, s storeChange, dryRun bool) {
	verb := "has"
	if dryRun {
		verb = "would have"
	}
	fmt.Fprintf(w, "%s %s %s with %s, before %d with %d\n", s.Store, verb,
		wording.Count(s.Sessions, "session", "sessions"), wording.Count(s.Messages, "message", "messages"), s.SessionsWas, s.MessagesWas)
}

// tellLink names a link of the home that is one no more: what it leads to is not what the home has there.
func tellLink(w io.Writer, l backup.Link, dryRun bool) {
	was, is := "was", "is"
	if dryRun {
		was, is = "is", "would be"
	}
	fmt.Fprintf(w, "%s %s a link to %s: what the backup has there %s in its place, the link %s kept in the snapshot, and what it leads to not touched\n",
		printable(l.Name), was, printable(l.Target), is, is)
}

// tellOthers names what of a backup is not restored, and what it does not have: of these the home has what it had before.
func tellOthers(w io.Writer, c backup.Contents) {
	if n := len(c.Skipped); n > 0 {
		const most = 5 // a backup of Hermes may have a whole cache in it
		more := ""
		if n > most {
			more = fmt.Sprintf(" and %d more", n-most)
		}
		fmt.Fprintf(w, "%s of processes or can be made again: %s%s\n",
			wording.Count(n, "file in it stays as it is here, as it tells", "files in it stay as they are here, as they tell"), printable(strings.Join(c.Skipped[:min(n, most)], ", ")), more)
	}
	for _, l := range c.LeftOut {
		fmt.Fprintf(w, "not in the backup: %s: %s\n", printable(l.Name), printable(l.Reason))
	}
	if n := len(c.LeftOut); n > 0 {
		fmt.Fprintf(w, "the backup is incomplete: %s could not be read when it was made\n", wording.Count(n, "file or folder", "files or folders"))
	}
}
