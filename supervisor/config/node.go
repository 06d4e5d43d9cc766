package config

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// A reader walks the parsed file by the keys it is asked for and collects all that is wrong, each at its line.
type reader struct {
	file     string
	anchors  map[string]ast.Node
	problems []Problem
	warnings []Problem
	unused   []string
	nodes    int // converted by plain, so that aliases of aliases cannot blow up
}

func newReader() *reader { return &reader{file: FileName, anchors: map[string]ast.Node{}} }

// maxPlainNodes bounds free-form settings; the largest seen in real homes has some hundred.
const maxPlainNodes = 10_000

func (r *reader) problem(line int, key, format string, args ...any) {
	r.problems = append(r.problems, Problem{File: r.file, Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) warn(line int, key, format string, args ...any) {
	r.warnings = append(r.warnings, Problem{File: r.file, Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
}

// anchorFinder collects the &anchors and *aliases of a file.
type anchorFinder struct {
	anchors map[string]ast.Node
	aliases *[]*ast.AliasNode
}

func (f anchorFinder) Visit(n ast.Node) ast.Visitor {
	switch t := n.(type) {
	case *ast.AnchorNode:
		if t.Name != nil && t.Value != nil {
			f.anchors[t.Name.GetToken().Value] = t.Value
		}
	case *ast.AliasNode:
		*f.aliases = append(*f.aliases, t)
	}
	return f
}

// findAnchors fills r.anchors and reports aliases of nothing.
func (r *reader) findAnchors(body ast.Node) {
	var aliases []*ast.AliasNode
	ast.Walk(anchorFinder{r.anchors, &aliases}, body)
	for _, a := range aliases {
		if name := a.Value.GetToken().Value; r.anchors[name] == nil {
			r.problem(lineOf(a), "", "*%s refers to an anchor that is not there (&%s)", name, name)
		}
	}
}

// resolve looks through anchors, aliases and tags. It returns nil for an alias of nothing and for a chain that
// does not end.
func (r *reader) resolve(n ast.Node) ast.Node {
	for range 16 {
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.TagNode:
			n = t.Value
		case *ast.AliasNode:
			n = r.anchors[t.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

func lineOf(n ast.Node) int {
	if n == nil {
		return 0
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// An entry is one key of a mapping with its value, resolved.
type entry struct {
	key  string
	line int
	node ast.Node
}

// entries lists a mapping in order; ok is false if n is none. Merged keys (<<) come after the mapping's own.
func (r *reader) entries(n ast.Node, depth int) (list []entry, ok bool) {
	m, ok := r.resolve(n).(ast.MapNode)
	if !ok || depth > 8 {
		return nil, false
	}
	var merged []ast.Node
	for it := m.MapRange(); it.Next(); {
		if it.Key().IsMergeKey() {
			merged = append(merged, it.Value())
			continue
		}
		key := it.Key().GetToken().Value
		list = append(list, entry{key: key, line: lineOf(it.Key()), node: r.resolve(it.Value())})
	}
	for _, n := range merged {
		sources := []ast.Node{n}
		if seq, ok := r.resolve(n).(*ast.SequenceNode); ok {
			sources = seq.Values
		}
		for _, s := range sources {
			more, _ := r.entries(s, depth+1)
			for _, e := range more {
				if !hasKey(list, e.key) {
					list = append(list, e)
				}
			}
		}
	}
	return list, true
}

func hasKey(list []entry, key string) bool {
	return slices.ContainsFunc(list, func(e entry) bool { return e.key == key })
}

// A section is one mapping that is read by key. A nil section has no keys.
type section struct {
	r     *reader
	path  string
	list  []entry
	asked []string
}

func (s *section) key(name string) string {
	if s.path == "" {
		return name
	}
	return s.path + "." + name
}

// get marks name as known and returns its entry; absent and null are both "not set".
func (s *section) get(name string) (entry, bool) {
	if s == nil {
		return entry{}, false
	}
	s.known(name)
	for _, e := range s.list {
		if e.key == name {
			_, null := e.node.(*ast.NullNode)
			return e, !null && e.node != nil
		}
	}
	return entry{}, false
}

// known marks names as valid without reading them.
func (s *section) known(names ...string) {
	if s == nil {
		return
	}
	for _, n := range names {
		if !slices.Contains(s.asked, n) {
			s.asked = append(s.asked, n)
		}
	}
}

// section reads a mapping below s.
func (s *section) section(name string) *section {
	e, ok := s.get(name)
	if !ok {
		return nil
	}
	return s.sub(e)
}

func (s *section) sub(e entry) *section {
	list, ok := s.r.entries(e.node, 0)
	if !ok {
		s.r.problem(e.line, s.key(e.key), "is %s, not a table of keys", kindOf(e.node))
		return nil
	}
	return &section{r: s.r, path: s.key(e.key), list: list}
}

// rest returns the entries that nobody asked for.
func (s *section) rest() []entry {
	if s == nil {
		return nil
	}
	var list []entry
	for _, e := range s.list {
		if !slices.Contains(s.asked, e.key) {
			list = append(list, e)
		}
	}
	return list
}

// refuseRest makes keys that nobody asked for errors, warnRest makes them warnings.
func (s *section) refuseRest() {
	for _, e := range s.rest() {
		s.r.problem(e.line, s.key(e.key), "%s", s.unknown(e.key))
	}
}

func (s *section) warnRest() {
	for _, e := range s.rest() {
		s.r.warn(e.line, s.key(e.key), "%s and has no effect", s.unknown(e.key))
	}
}

func (s *section) unknown(key string) string {
	if near := Suggest(key, s.asked); near != "" {
		return fmt.Sprintf("is not a key (did you mean %s?)", s.key(near))
	}
	return "is not a key"
}

// unusedKeys marks names as valid keys of Hermes Agent, and notes those that are set as without effect here.
func (s *section) unusedKeys(names ...string) {
	if s == nil {
		return
	}
	for _, e := range s.rest() {
		if slices.Contains(names, e.key) {
			s.r.unused = append(s.r.unused, s.key(e.key))
		}
	}
	s.known(names...)
}
