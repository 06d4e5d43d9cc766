package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/plot"
)

// A picture is what `ctl mem` and `ctl fds` can draw of a worker's past.
type picture struct {
	plot  bool
	svg   string
	since when
}

// allKept is as far back as readings go.
const allKept = 24 * time.Hour

func (f *picture) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.plot, "plot", false, "draw the last readings in the terminal")
	c.Flags().StringVar(&f.svg, "svg", "", "write the picture as an SVG `file`; - is stdout")
	f.since = when{"1h"}
	c.Flags().Var(&f.since, "since", "from this `time` on, at most 24h ago: one reading a second for an hour, before that one a minute")
	_ = c.MarkFlagFilename("svg", "svg")
}

func (f *picture) wanted() bool { return f.plot || f.svg != "" }

// check says what does not go together.
func (f *picture) check(output string) error {
	if f.wanted() && output == outputJSON {
		return usageError{errors.New("-o json writes readings, --plot and --svg draw them; give one of the two")}
	}
	if f.plot && f.svg == "-" {
		return usageError{errors.New("--plot and --svg - both write to stdout; give one of the two")}
	}
	return nil
}

// past is the readings of a worker and the restarts among them.
type past struct {
	series *controlv1.SeriesResponse
	marks  []plot.Mark
	from   time.Time
	to     time.Time
}

func (p *program) past(ctx context.Context, conn grpc.ClientConnInterface, worker string, since when) (*past, error) {
	now := time.Now()
	begin := since.at(now)
	if now.Sub(begin) > allKept {
		return nil, usageError{fmt.Errorf("--since %s: readings are kept for 24h", since.text)}
	}
	from := unixSeconds(begin)
	series, err := controlv1.NewOperationsClient(conn).Series(ctx, &controlv1.SeriesRequest{Worker: worker, Since: from})
	if err != nil {
		return nil, err
	}
	h := &past{series: series, from: begin, to: now}
	if n := len(series.Readings); n > 0 {
		h.from, h.to = moment(series.Readings[0].At), moment(series.Readings[n-1].At)
	}
	if worker == supervisorName {
		return h, nil
	}
	stream, err := controlv1.NewControlClient(conn).Events(ctx, &controlv1.EventsRequest{Worker: worker, Since: from, Limit: 1000})
	if err != nil {
		return nil, err
	}
	return h, follow(stream.Recv, func(e *controlv1.Event) error {
		if e.Kind == "worker_exited" {
			h.marks = append(h.marks, plot.Mark{At: moment(e.At), Label: oneLine(e.Message, maxNote)})
		}
		return nil
	})
}

const supervisorName = "supervisor"

func (h *past) line(name string, value func(*controlv1.Reading) int64) plot.Line {
	l := plot.Line{Name: name}
	for _, r := range h.series.Readings {
		l.Points = append(l.Points, plot.Point{At: moment(r.At), Value: float64(value(r))})
	}
	return l
}

func (h *past) memoryChart() plot.Chart {
	c := plot.Chart{
		Title: "Memory of " + printable(h.series.Worker), Unit: plot.Bytes, Marks: h.marks, From: h.from, To: h.to,
		Limit: float64(h.series.MemoryLimit),
		Lines: []plot.Line{
			h.line("resident", func(r *controlv1.Reading) int64 { return r.RssBytes + r.BelowRssBytes }),
			h.line("its own (anonymous)", func(r *controlv1.Reading) int64 { return r.AnonBytes + r.BelowAnonBytes }),
		},
	}
	return c
}

func (h *past) fdChart() plot.Chart {
	return plot.Chart{
		Title: "Open descriptors of " + printable(h.series.Worker), Unit: plot.Count, Marks: h.marks, From: h.from, To: h.to,
		Limit: float64(h.series.FdLimit),
		Lines: []plot.Line{h.line("descriptors", func(r *controlv1.Reading) int64 { return r.Fds })},
	}
}

// draw writes the picture that the flags ask for.
func (p *program) draw(f *picture, c plot.Chart) error {
	if c.Empty() {
		return errors.New("there are no readings yet; a worker is read once a second while it runs")
	}
	if f.plot {
		width, height := p.terminalSize()
		glyphs := plot.Braille
		if asciiOnly(os.Getenv) {
			glyphs = plot.ASCII
		}
		if err := plot.Text(p.out, c, width, height, glyphs); err != nil {
			return err
		}
	}
	switch f.svg {
	case "":
		return nil
	case "-":
		return plot.SVG(p.out, c)
	}
	return f.write(c)
}

// write makes the SVG file, whole or not at all.
func (f *picture) write(c plot.Chart) error {
	file, err := os.CreateTemp(filepath.Dir(f.svg), "."+filepath.Base(f.svg)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", f.svg, err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err = errors.Join(plot.SVG(file, c), file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), f.svg)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.svg, err)
	}
	return nil
}

// Size of a plot where nobody says how large the terminal is.
const (
	plotWidth  = 80
	plotHeight = 16
)

// terminalSize is the width of the terminal, and a height that leaves room for what is around a picture.
func (p *program) terminalSize() (width, height int) {
	f, ok := p.out.(*os.File)
	if !ok {
		return plotWidth, plotHeight
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return plotWidth, plotHeight
	}
	return int(size.Col), max(6, min(plotHeight, int(size.Row)-6))
}

func (p *program) ctlMem() *cobra.Command {
	f := &picture{}
	c := &cobra.Command{
		Use:   "mem NAME",
		Short: "Show how the memory of a worker has grown",
		Long: `Mem shows the memory of a worker with all processes below it: what it is, what it was, and how it grew. The picture
marks each restart with its cause; where the locale is not UTF-8 or the terminal has no font for it, it is drawn in ASCII
(LC_ALL=C.UTF-8 says that it has). The supervisor itself is named supervisor.`,
		Example: `  hermes-supervisor ctl mem tools
  hermes-supervisor ctl mem agent-1 --plot --since 10m
  hermes-supervisor ctl mem agent-1 --svg agent-1.svg --since 24h`,
		Args:              exactly(1, "the name of a worker, or supervisor"),
		ValidArgsFunction: p.completeProcesses,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(p.output); err != nil {
				return err
			}
			return p.connected(c.Context(), func(conn grpc.ClientConnInterface) error {
				h, err := p.past(c.Context(), conn, args[0], f.since)
				if err != nil {
					return fmt.Errorf("mem %s: %w", args[0], err)
				}
				if f.wanted() {
					return p.draw(f, h.memoryChart())
				}
				return p.print(h.series, func(w io.Writer) error { return memoryTable(w, h) })
			})
		},
	}
	f.flags(c)
	return p.withOutput(c)
}

// memoryTable says in numbers what the picture shows.
func memoryTable(w io.Writer, h *past) error {
	list := h.series.Readings
	if len(list) == 0 {
		_, err := fmt.Fprintf(w, "%s has no readings in that time\n", printable(h.series.Worker))
		return err
	}
	first, last := list[0], list[len(list)-1]
	least, most := last, last
	total := func(r *controlv1.Reading) int64 { return r.RssBytes + r.BelowRssBytes }
	for _, r := range list {
		if total(r) < total(least) {
			least = r
		}
		if total(r) > total(most) {
			most = r
		}
	}
	at := func(r *controlv1.Reading) string { return moment(r.At).Format("15:04:05") }
	limit := "none"
	if h.series.MemoryLimit > 0 {
		limit = size(h.series.MemoryLimit)
	}
	fmt.Fprintf(w, "%s, %s over %s, %s\n", printable(h.series.Worker), wording.Count(len(list), "reading", "readings"), span(last.At-first.At),
		wording.Count(len(h.marks), "restart", "restarts"))
	return pairs(w,
		"now", fmt.Sprintf("%s, %s of it its own, %s below it", size(total(last)), size(last.AnonBytes+last.BelowAnonBytes),
			wording.Count(last.BelowProcesses, "process", "processes")),
		"least", fmt.Sprintf("%s at %s", size(total(least)), at(least)),
		"most", fmt.Sprintf("%s at %s", size(total(most)), at(most)),
		"first", fmt.Sprintf("%s at %s", size(total(first)), at(first)),
		"limit", limit,
	)
}
