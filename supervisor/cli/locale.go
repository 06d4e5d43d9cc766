package cli

import (
	"io"
	"os"
	"strings"
)

// asciiOnly says whether people are shown nothing but ASCII that is not a text of somebody: where the locale is not UTF-8, by
// the rules of POSIX (the first of LC_ALL, LC_CTYPE and LANG that is set decides, and none is the C locale), and on terminals
// without a font for more.
func asciiOnly(getenv func(string) string) bool {
	switch getenv("TERM") {
	case "dumb", "linux":
		return true
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return true
}

// signs are those that this program writes itself, here and in what the supervisor tells. A text of somebody that has one of
// them is shown so as well; all else of it stays, as a pipe in the C locale is no reason to lose a word.
var signs = strings.NewReplacer("→", "->", "…", "...", "×", "x", "�", "?")

// A plainWriter writes the signs of this program in ASCII.
type plainWriter struct{ io.Writer }

func (w plainWriter) Write(b []byte) (int, error) {
	if _, err := w.Writer.Write([]byte(signs.Replace(string(b)))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// forPeople is where to write what people read. Documents and files for programs go past it.
func forPeople(w io.Writer) io.Writer {
	if asciiOnly(os.Getenv) {
		return plainWriter{w}
	}
	return w
}

// plain is a text as w shows it, for what has to know how wide it is.
func plain(w io.Writer, text string) string {
	if _, ok := w.(plainWriter); ok {
		return signs.Replace(text)
	}
	return text
}
