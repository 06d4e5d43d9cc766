package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// print writes a message as JSON or lets table write it for people.
func (p *program) print(m proto.Message, table func(io.Writer) error) error {
	if p.output == outputJSON {
		_, err := p.out.Write(indent(document(m)))
		return err
	}
	return table(forPeople(p.out))
}

// rows writes aligned columns.
func rows(w io.Writer, header string, lines [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(header, " | ", "\t"))
	for _, l := range lines {
		for i := range l {
			l[i] = plain(w, dash(cell(l[i])))
		}
		fmt.Fprintln(t, strings.Join(l, "\t"))
	}
	return t.Flush()
}

// pairs writes a name and a value on each line, values under each other.
func pairs(w io.Writer, list ...string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(list); i += 2 {
		fmt.Fprintf(t, "%s\t%s\n", list[i], plain(w, cell(list[i+1])))
	}
	return t.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printable replaces control characters: names, logs and errors come from other programs, and a terminal obeys what
// it is sent.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\u202e' || r == '\u2066' || r == '\u2067' || r == '\u2068' {
			return '�'
		}
		return r
	}, s)
}

// cell is printable in one column of one line.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(s))
}

// oneLine is printable without line breaks, cut to n runes.
func oneLine(s string, n int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// size writes bytes in the unit a person thinks in.
func size(n int64) string {
	switch {
	case n <= 0:
		return ""
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// span writes seconds as people say them: 4s, 3m12s, 5h10m, 3d4h.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Truncate(time.Second)
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case d <= 0:
		return "0s"
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	}
	return d.String()
}

func clock(unixSeconds float64) string {
	return moment(unixSeconds).Format("15:04:05.000")
}

func moment(unixSeconds float64) time.Time {
	return time.UnixMicro(int64(unixSeconds * 1e6))
}

// Colours, used only where a person looks.
const (
	red    = "31"
	yellow = "33"
	green  = "32"
	dim    = "2"
)

// colour marks a text if the output is a terminal and NO_COLOR is not set.
func (p *program) colour(code, text string) string {
	if code == "" || !isTerminal(p.out) || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// isTerminal asks the kernel. golang.org/x/term would do, but it is a terminal package, and the supervisor links none.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// shellWord quotes a text for a command line that a person may copy.
func shellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// marked shows what a search has found between >>> and <<<: in colour, or as it is where there is none.
func (p *program) marked(snippet string) string {
	if !isTerminal(p.out) {
		return snippet
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(snippet, ">>>")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		hit, after, _ := strings.Cut(rest, "<<<")
		b.WriteString(p.colour(yellow, hit))
		snippet = after
	}
}
