package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/transcript"
)

// Formats of an export.
const (
	formatJSONL = "jsonl"
	formatMD    = "md"
	formatQMD   = "qmd"
	formatHTML  = "html"
	formatTrace = "trace"
)

var exportFormats = []string{formatJSONL, formatMD, formatQMD, formatHTML, formatTrace}

// An export is one call of `sessions export`.
type export struct {
	*program
	client  controlv1.SessionsClient
	request *controlv1.ExportSessionsRequest
	to      string // "" is the usual place, "-" stdout

	format, only, lineage                              string
	redact, noRedact, dryRun, force, deleteAfter, sure bool

	redactor *transcript.Redactor // nil: secrets stay
}

func (p *program) sessionsExport() *cobra.Command {
	x, f := &export{program: p, request: &controlv1.ExportSessionsRequest{}}, &sessionFilter{}
	c := &cobra.Command{
		Use:   "export [FILE|FOLDER]",
		Short: "Write sessions as lines of JSON, Markdown, HTML or a trace",
		Long: `Export writes sessions. The formats:

  jsonl  one line a session with everything that the store has of it, in the form that Hermes Agent writes too; import takes
         it back without a loss. Without FILE, or with -, it goes to stdout.
  md     a file of Markdown a conversation; qmd has a head of YAML besides
  html   a page a conversation that needs nothing from elsewhere
  trace  lines of JSON that viewers of agent traces read; without secrets unless --no-redact is given

Of the last four a conversation is a file in FOLDER (session-exports in the home), with a line in its manifest.jsonl; one
conversation alone may have a FILE. With --lineage logical sessions that continue each other are one conversation.`,
		Example: `  hermes-supervisor sessions export --session-id latest
  hermes-supervisor sessions export --all everything.jsonl
  hermes-supervisor sessions export --format md --source telegram --newer-than 30d notes/
  hermes-supervisor sessions export --format html --redact --session-id latest to-send.html
  hermes-supervisor sessions export --session-id 20260101_101010_ab12cd34 --delete-after-verified --yes old.jsonl`,
		Args: between(0, 1, ""),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if x.request.Filter, err = f.read(c, time.Now()); err != nil {
				return err
			}
			if len(args) == 1 {
				x.to = args[0]
			}
			if err := x.check(); err != nil {
				return usageError{err}
			}
			with := p.reading
			if x.deleteAfter {
				with = p.onSessions
			}
			return with(c.Context(), func(client controlv1.SessionsClient) error {
				x.client = client
				if err := x.chosen(c.Context()); err != nil {
					return err
				}
				return x.run(c.Context())
			})
		},
	}
	x.flags(c)
	f.flags(c)
	return c
}

func (x *export) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&x.format, "format", formatJSONL, "`format`: "+strings.Join(exportFormats, ", "))
	f.StringVar(&x.only, "only", "", "only `part`: user-prompts (not with jsonl)")
	f.StringVar(&x.lineage, "lineage", "single", "`what` of a conversation in several sessions: single (those that are chosen) or logical (all of it)")
	f.BoolVar(&x.redact, "redact", false, "take secrets out: those of .env, and what looks like one")
	f.BoolVar(&x.noRedact, "no-redact", false, "leave secrets in a trace")
	f.StringSliceVar(&x.request.Sessions, "session-id", nil, "these `sessions` alone")
	f.BoolVar(&x.request.All, "all", false, "every session")
	f.BoolVar(&x.force, "force", false, "replace files that are there")
	f.BoolVar(&x.dryRun, "dry-run", false, "only say which sessions")
	f.BoolVar(&x.deleteAfter, "delete-after-verified", false, "delete the session when its copy has been read back (one --session-id, jsonl, --yes)")
	f.BoolVarP(&x.sure, "yes", "y", false, "really delete")
	_ = c.RegisterFlagCompletionFunc("session-id", x.completeSession)
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(exportFormats, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("lineage", cobra.FixedCompletions([]string{"single", "logical"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("only", cobra.FixedCompletions([]string{"user-prompts"}, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses what does not go together.
func (x *export) check() error {
	switch {
	case !slices.Contains(exportFormats, x.format):
		return fmt.Errorf("--format %s: the formats are %s", x.format, strings.Join(exportFormats, ", "))
	case x.only != "" && x.only != "user-prompts":
		return fmt.Errorf("--only %s: it can be user-prompts", x.only)
	case x.only != "" && x.format == formatJSONL:
		return errors.New("--only is for md, qmd, html and trace: lines of JSON are whole sessions, which can be imported")
	case x.lineage != "single" && x.lineage != "logical":
		return fmt.Errorf("--lineage %s: it is single or logical", x.lineage)
	case x.redact && x.noRedact:
		return errors.New("--redact and --no-redact: choose one")
	case x.noRedact && x.format != formatTrace:
		return errors.New("--no-redact is for --format trace; the other formats keep secrets unless --redact is given")
	case x.deleteAfter && !x.sure:
		return errors.New("--delete-after-verified needs --yes")
	case x.deleteAfter && (len(x.request.Sessions) != 1 || x.lineage != "single"):
		return errors.New("--delete-after-verified needs one --session-id, and --lineage single")
	case x.deleteAfter && (x.format != formatJSONL || x.redact || x.to == "" || x.to == "-" || x.dryRun):
		return errors.New("--delete-after-verified needs a FILE of the format jsonl, without --redact: only that can be imported again as it was")
	}
	x.request.Lineage = x.lineage == "logical"
	return nil
}

// chosen refuses to export nothing that was named, and a FILE that is a session: what was meant is in no file of this name.
func (x *export) chosen(ctx context.Context) error {
	r := x.request
	named := r.All || len(r.Sessions) > 0 || !proto.Equal(r.Filter, &controlv1.SessionFilter{})
	if _, err := os.Lstat(x.to); x.to != "" && x.to != "-" && err != nil {
		s, err := x.client.Show(ctx, &controlv1.ShowSessionRequest{Session: x.to, Limit: 1})
		if errors.Is(err, ipc.ErrGone) || errors.Is(err, ipc.ErrTimeout) || ctx.Err() != nil {
			return err
		}
		// Where sessions are chosen another way, a file may have the title of one.
		if err == nil && (!named || s.Session.Id == x.to) {
			how := ""
			if x.format != formatJSONL {
				how = " --format " + x.format
			}
			return usageError{fmt.Errorf("%s is a session; FILE is where to write it\nto export it: hermes-supervisor sessions export%s --session-id %s",
				x.to, how, shellWord(x.to))}
		}
	}
	if !named {
		return usageError{errors.New("say which sessions: --session-id ID, --all, or a filter such as --older-than 30d")}
	}
	return nil
}

func (x *export) run(ctx context.Context) error {
	if x.redact || x.format == formatTrace && !x.noRedact {
		c, err := x.load()
		if err != nil {
			return fmt.Errorf("read the secrets that are to be taken out: %w", err)
		}
		x.redactor = transcript.NewRedactor(c.Secrets.Values())
	}
	switch {
	case x.dryRun:
		return x.preview(ctx)
	case x.format != formatJSONL:
		return x.documents(ctx)
	}
	to := x.to
	if to == "" {
		to = "-"
	}
	if err := x.toFile(to, x.force, func(w io.Writer) error { return x.lines(ctx, x.request, w) }); err != nil || !x.deleteAfter {
		return err
	}
	return x.deleteCopied(ctx, to)
}

// preview says what would be written.
func (x *export) preview(ctx context.Context) error {
	list, err := x.client.Select(ctx, x.request)
	if err != nil {
		return err
	}
	if len(list.Sessions) == 0 {
		_, err := fmt.Fprintln(x.out, "no sessions found")
		return err
	}
	if err := sessionRows(x.out, list.Sessions); err != nil {
		return err
	}
	_, err = fmt.Fprintf(x.out, "would export %s as %s\n", wording.Count(len(list.Sessions), "session", "sessions"), x.format)
	return err
}

// lines writes the lines of sessions, without their secrets if those are not wanted.
func (x *export) lines(ctx context.Context, r *controlv1.ExportSessionsRequest, w io.Writer) error {
	if x.redactor == nil {
		return x.receive(ctx, r, w)
	}
	return x.eachLine(ctx, r, func(line []byte) error {
		line, err := x.redactor.JSON(line)
		if err != nil {
			return err
		}
		_, err = w.Write(line)
		return err
	})
}

// receive writes an export as it comes.
func (x *export) receive(ctx context.Context, r *controlv1.ExportSessionsRequest, w io.Writer) error {
	in, err := x.client.Export(ctx, r)
	if err != nil {
		return err
	}
	for {
		chunk, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(chunk.Data); err != nil {
			return err
		}
	}
}

// eachLine calls f with each line of an export. It holds one session in memory at a time.
func (x *export) eachLine(ctx context.Context, r *controlv1.ExportSessionsRequest, f func(line []byte) error) error {
	w := lineWriter{f: f}
	return x.receive(ctx, r, &w)
}

// A lineWriter calls f with each whole line that is written to it.
type lineWriter struct {
	f    func([]byte) error
	rest bytes.Buffer
}

func (l *lineWriter) Write(b []byte) (int, error) {
	written := len(b)
	for {
		at := bytes.IndexByte(b, '\n')
		if at < 0 {
			l.rest.Write(b)
			return written, nil
		}
		l.rest.Write(b[:at])
		err := l.f(l.rest.Bytes())
		l.rest.Reset()
		if err != nil {
			return 0, err
		}
		b = b[at+1:]
	}
}

// deleteCopied deletes the session whose line is in a file. The line is read back from the disk, and the store deletes the
// session only while it would still write the same.
func (x *export) deleteCopied(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the copy back: %w", err)
	}
	s, err := transcript.Parse(text)
	if err != nil {
		return fmt.Errorf("%s, which was written, cannot be read; nothing was deleted: %w", path, err)
	}
	sum := sha256.Sum256(text)
	_, err = x.client.Delete(ctx, &controlv1.ChangeSessionsRequest{Sessions: []string{s.ID}, Unchanged: hex.EncodeToString(sum[:])})
	if err != nil {
		return fmt.Errorf("the copy in %s is whole, but nothing was deleted: %w", path, err)
	}
	_, err = fmt.Fprintf(x.err, "deleted %s; import %s brings it back\n", s.ID, path)
	return err
}
