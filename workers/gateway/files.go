package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An OutFile is a file that goes out with a text. It was opened inside a folder from which files may be sent, so
// a link that is changed meanwhile leads nowhere else. The frame closes it after the delivery.
type OutFile struct {
	*os.File
	Kind string // image | voice | audio | video | document
	Name string
	Size int64
}

// kinds by extension; everything else is a document.
var kinds = map[string][]string{
	"image": {".png", ".jpg", ".jpeg", ".gif", ".webp"},
	"video": {".mp4", ".mov", ".avi", ".mkv", ".webm", ".3gp"},
	"audio": {".mp3", ".m4a", ".wav", ".flac"},
	"voice": {".ogg", ".opus"},
}

// KindOf says what a file is by its name.
func KindOf(name string) string {
	ext := strings.ToLower(filepath.Ext(name))
	for kind, exts := range kinds {
		if slices.Contains(exts, ext) {
			return kind
		}
	}
	return "document"
}

// withFiles adds a line for each file, which is how the model learns of it. The text of a message must hold
// everything that a resumed turn needs, so nothing of a file is kept elsewhere.
func withFiles(text string, files []File) string {
	var b strings.Builder
	b.WriteString(text)
	for _, f := range files {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "[%s from the user: %s", f.Kind, oneLine(f.Name))
		if f.MIME != "" {
			fmt.Fprintf(&b, ", %s", oneLine(f.MIME))
		}
		fmt.Fprintf(&b, ", %d bytes, saved as %s]", f.Size, f.Path)
	}
	return b.String()
}

// oneLine keeps a name chosen by a stranger from looking like more than a name.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '[' || r == ']' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return '_'
		}
		return r
	}, s)
}

// mediaTag is how a model sends a file: a line of its own.
var mediaTag = regexp.MustCompile(`(?m)^[ \t]*MEDIA:[ \t]*(/[^\n]*?)[ \t]*$\n?`)

// takeFiles opens the files that text names and takes their lines out. What may not or cannot be sent is said
// in the text instead. dirs are the folders that files may come from.
func takeFiles(text string, dirs []string) (string, []OutFile) {
	if !strings.Contains(text, "MEDIA:") {
		return text, nil
	}
	var files []OutFile
	rest := outsideFences(text, func(part string) string {
		return mediaTag.ReplaceAllStringFunc(part, func(line string) string {
			path := mediaTag.FindStringSubmatch(line)[1]
			f, err := openWithin(path, dirs)
			if err != nil {
				return fmt.Sprintf("(file not sent: %s)\n", err)
			}
			files = append(files, f)
			return ""
		})
	})
	return strings.TrimSpace(rest), files
}

// outsideFences applies change to the parts of text that are not in a fenced block of code.
func outsideFences(text string, change func(string) string) string {
	var out, part strings.Builder
	fenced := false
	flush := func() {
		if part.Len() > 0 {
			out.WriteString(change(part.String()))
			part.Reset()
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			flush()
			fenced = !fenced
			out.WriteString(line)
			continue
		}
		if fenced {
			out.WriteString(line)
			continue
		}
		part.WriteString(line)
	}
	flush()
	return out.String()
}

var errNotAllowed = errors.New("it is not in a folder that files may be sent from")

// openWithin opens path if it is a regular file below one of dirs, following no link out of it.
func openWithin(path string, dirs []string) (OutFile, error) {
	name := filepath.Base(path)
	path = filepath.Clean(path)
	for _, dir := range dirs {
		rel, err := filepath.Rel(dir, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		f, err := openRegular(dir, rel)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return OutFile{}, fmt.Errorf("%s: no such file", name)
		case err != nil:
			return OutFile{}, fmt.Errorf("%s: %w", name, errNotAllowed)
		}
		return f, nil
	}
	return OutFile{}, fmt.Errorf("%s: %w", name, errNotAllowed)
}

func closeAll(files []OutFile) {
	for _, f := range files {
		_ = f.Close() // opened for reading: nothing can be lost
	}
}

func openRegular(dir, rel string) (OutFile, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return OutFile{}, err
	}
	defer root.Close()
	// Looked at first: opening a pipe would block.
	if info, err := root.Stat(rel); err != nil {
		return OutFile{}, err
	} else if !info.Mode().IsRegular() {
		return OutFile{}, errNotAllowed
	}
	f, err := root.Open(rel)
	if err != nil {
		return OutFile{}, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return OutFile{}, errNotAllowed
	}
	return OutFile{File: f, Kind: KindOf(rel), Name: filepath.Base(rel), Size: info.Size()}, nil
}
