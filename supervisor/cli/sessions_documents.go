package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/transcript"
)

// exportFolder is where documents go if nothing else is said, as in Hermes.
const exportFolder = "session-exports"

// manifestFile lists the documents of a folder, a line each.
const manifestFile = "manifest.jsonl"

// manifestLine is one document.
type manifestLine struct {
	Path    string   `json:"path"` // in the folder
	Count   int      `json:"count"`
	Lineage []string `json:"lineage"` // ids of its sessions
	SHA256  string   `json:"sha256"`
}

// documents writes a document a conversation.
func (x *export) documents(ctx context.Context) error {
	list, err := x.client.Select(ctx, x.request)
	if err != nil {
		return err
	}
	groups := conversations(list.Sessions, x.request.Lineage)
	switch {
	case len(groups) == 0:
		_, err := fmt.Fprintln(x.err, "no sessions found")
		return err
	case x.to == "-":
		for _, g := range groups {
			if _, err := x.document(ctx, g, x.out); err != nil {
				return err
			}
		}
		return nil
	case x.isFile(len(groups)):
		return x.toFile(x.to, x.force, func(w io.Writer) error { _, err := x.document(ctx, groups[0], w); return err })
	}
	return x.folder(ctx, groups)
}

// conversations puts sessions that continue each other together, if that is wanted.
func conversations(list []*controlv1.SessionInfo, together bool) (groups [][]string) {
	group := map[string]int{}
	for _, s := range list {
		if n, is := group[s.Parent]; together && is {
			groups[n] = append(groups[n], s.Id)
			group[s.Id] = n
			continue
		}
		groups = append(groups, []string{s.Id})
		group[s.Id] = len(groups) - 1
	}
	return groups
}

// isFile says that the one conversation there is has a file of its own, and not a place in a folder.
func (x *export) isFile(conversations int) bool {
	if conversations != 1 || x.to == "" || strings.HasSuffix(x.to, "/") || filepath.Ext(x.to) == "" {
		return false
	}
	info, err := os.Stat(x.to)
	return err != nil || !info.IsDir()
}

// document writes one conversation.
func (x *export) document(ctx context.Context, ids []string, w io.Writer) (count int, err error) {
	var sessions []transcript.Session
	err = x.eachLine(ctx, &controlv1.ExportSessionsRequest{Sessions: ids}, func(line []byte) error {
		if x.redactor != nil {
			if line, err = x.redactor.JSON(line); err != nil {
				return err
			}
		}
		s, err := transcript.Parse(line)
		if x.only != "" {
			s = s.Prompts()
		}
		sessions = append(sessions, s)
		return err
	})
	if err != nil {
		return 0, err
	}
	count = transcript.Count(sessions)
	switch x.format {
	case formatHTML:
		return count, transcript.HTML(w, sessions)
	case formatTrace:
		return count, transcript.Trace(w, sessions)
	}
	return count, transcript.Markdown(w, sessions, x.format == formatQMD)
}

// extensions of the files of formats.
var extensions = map[string]string{formatMD: ".md", formatQMD: ".qmd", formatHTML: ".html", formatTrace: ".trace.jsonl"}

// folder writes each conversation to a file of a folder, and what they are to its manifest. Before anything is written it
// looks whether a file is in the way.
func (x *export) folder(ctx context.Context, groups [][]string) error {
	dir := x.to
	if dir == "" {
		home, err := x.resolvedHome()
		if err != nil {
			return err
		}
		dir = filepath.Join(home, exportFolder)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = fileName(g[0]) + extensions[x.format]
		if _, err := os.Lstat(filepath.Join(dir, names[i])); err == nil && !x.force {
			return fmt.Errorf("%s is there already; nothing was written\nreplace it with --force, or name another folder", filepath.Join(dir, names[i]))
		}
	}
	var lines []manifestLine
	for i, g := range groups {
		sum, count := sha256.New(), 0
		err := writeWhole(filepath.Join(dir, names[i]), func(w io.Writer) (err error) {
			count, err = x.document(ctx, g, io.MultiWriter(w, sum))
			return err
		})
		if err != nil {
			return fmt.Errorf("session %s: %w", g[0], err)
		}
		lines = append(lines, manifestLine{Path: names[i], Count: count, Lineage: g, SHA256: hex.EncodeToString(sum.Sum(nil))})
	}
	if err := addToManifest(filepath.Join(dir, manifestFile), lines); err != nil {
		return err
	}
	_, err := fmt.Fprintf(x.err, "wrote %s to %s\n", wording.Count(len(groups), "conversation", "conversations"), dir)
	return err
}

// fileName makes an id a name of a file: ids come from other programs.
func fileName(id string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, id)
	return strings.TrimLeft(name, ".")
}

// addToManifest replaces the lines of files that were written again and adds the new ones.
func addToManifest(path string, lines []manifestLine) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := map[string]bool{}
	for _, l := range lines {
		fresh[l.Path] = true
	}
	return writeWhole(path, func(w io.Writer) error {
		for text := range bytes.Lines(old) {
			var l manifestLine
			if json.Unmarshal(text, &l) == nil && fresh[l.Path] || len(bytes.TrimSpace(text)) == 0 {
				continue
			}
			if _, err := w.Write(append(bytes.TrimRight(text, "\n"), '\n')); err != nil {
				return err
			}
		}
		e := json.NewEncoder(w)
		for _, l := range lines {
			if err := e.Encode(l); err != nil {
				return err
			}
		}
		return nil
	})
}
