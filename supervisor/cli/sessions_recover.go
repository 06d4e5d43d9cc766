package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

func (p *program) sessionsRecover() *cobra.Command {
	var o store.RecoverOptions
	var report string
	c := &cobra.Command{
		Use:   "recover",
		Short: "Read what can be read of a damaged store into a new one",
		Long: `Recover saves what can be read of a database that is damaged, was moved aside, or was captured with its write-ahead log.

The source is never opened and never changed: it is copied together with its WAL, and only the copy is read, around what
is damaged. The result is a new file that is checked before it gets its name; it replaces nothing. Searching works in it
after the first start.

To use the result: stop the supervisor, move state.db, state.db-wal and state.db-shm away together, move the result to
state.db, start again.`,
		Example: `  hermes-supervisor sessions recover --source ~/.hermes/state.db --inspect-only
  hermes-supervisor sessions recover --source state.db.retired-wal-20261201-031500-812/state.db --output saved.db
  hermes-supervisor sessions recover --source broken.db --output saved.db --allow-partial -o json`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.Source == "":
				return usageError{errors.New("--source is needed: the database to read\nsee: hermes-supervisor sessions recover --help")}
			case o.Output == "" && !o.InspectOnly:
				return usageError{errors.New("--output is needed, or --inspect-only")}
			}
			r, err := store.Recover(c.Context(), o)
			if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrExists) {
				return usageError{err}
			}
			if err != nil && len(r.Tables) == 0 && report == "" && p.output != outputJSON {
				return fmt.Errorf("%w\nthe source was not changed", err) // nothing was read of which a table could tell
			}
			if werr := p.recovered(r, report, o); werr != nil && err == nil {
				err = werr
			}
			if err != nil {
				return fmt.Errorf("%w\nthe source was not changed", err)
			}
			if !r.Complete && (o.InspectOnly || !o.AllowPartial) {
				return silentError{1}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.Source, "source", "", "`file` to read: a database or a preserved copy of one")
	f.StringVar(&o.Output, "output", "", "new `file` for what is saved")
	f.BoolVar(&o.InspectOnly, "inspect-only", false, "only say what could be saved")
	f.BoolVar(&o.AllowPartial, "allow-partial", false, "keep the result even if rows are lost")
	f.StringVar(&o.WorkDir, "work-dir", "", "`folder` for the copy of the source (default: beside the output)")
	f.StringVar(&report, "report", "", "also write the report to this `file` (default: OUTPUT.recovery.json)")
	return p.withFormat(c, "format")
}

// recovered prints a report and keeps it beside the result.
func (p *program) recovered(r *store.Recovery, report string, o store.RecoverOptions) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if report == "" && !o.InspectOnly && r.Verified {
		report = o.Output + ".recovery.json"
	}
	if report != "" {
		f, err := os.OpenFile(report, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		_, err = f.Write(text)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if p.output == outputJSON {
		_, err := p.out.Write(text)
		return err
	}
	return recoveryTable(forPeople(p.out), r, o)
}

func recoveryTable(w io.Writer, r *store.Recovery, o store.RecoverOptions) error {
	var lines [][]string
	for _, t := range r.Tables {
		if t.Rows == 0 && t.Status == "complete" {
			continue
		}
		lines = append(lines, []string{t.Name, t.Status, strconv.FormatInt(t.Rows, 10), strconv.FormatInt(t.Lost, 10), oneLine(t.Error, 60)})
	}
	if len(lines) > 0 {
		if err := rows(w, "TABLE | STATUS | SAVED | LOST AT MOST | ERROR", lines); err != nil {
			return err
		}
	}
	for _, e := range r.Errors {
		fmt.Fprintln(w, printable(e))
	}
	if r.Placeholders > 0 {
		fmt.Fprintf(w, "%s got placeholders\n",
			wording.Count(r.Placeholders, "session was lost whose messages are there; it", "sessions were lost whose messages are there; they"))
	}
	saved := wording.Count(r.Saved(), "row", "rows") + " can be saved"
	if !o.InspectOnly && r.Verified && (r.Complete || o.AllowPartial) {
		saved = wording.Count(r.Saved(), "row is", "rows are") + " saved in " + o.Output + ", which was checked"
	}
	_, err := fmt.Fprintf(w, "%s, at most %s; the source was not changed\n", saved, wording.Count(r.Lost(), "is lost", "are lost"))
	return err
}
