package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// scalar returns the text of a scalar node.
func scalar(n ast.Node) (string, bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.LiteralNode:
		return t.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return strings.TrimSpace(n.GetToken().Value), true
	}
	return "", false
}

func (s *section) text(name string, dst *string) {
	e, ok := s.get(name)
	if !ok {
		return
	}
	v, ok := scalar(e.node)
	if !ok {
		s.r.problem(e.line, s.key(name), "is %s, not a text", kindOf(e.node))
		return
	}
	*dst = v
}

func (s *section) boolean(name string, dst *bool) {
	e, ok := s.get(name)
	if !ok {
		return
	}
	v, ok := scalar(e.node)
	switch strings.ToLower(v) {
	case "true", "yes", "on":
		*dst = true
	case "false", "no", "off":
		*dst = false
	default:
		ok = false
	}
	if !ok {
		s.r.problem(e.line, s.key(name), "%s is neither true nor false", describe(e.node))
	}
}

func (s *section) integer(name string, dst *int, least, most int) {
	e, ok := s.get(name)
	if !ok {
		return
	}
	text, _ := scalar(e.node)
	v, err := strconv.Atoi(strings.ReplaceAll(text, "_", ""))
	switch {
	case err != nil:
		s.r.problem(e.line, s.key(name), "%s is not a whole number (try %d)", describe(e.node), max(*dst, least))
	case v < least || v > most:
		s.r.problem(e.line, s.key(name), "%d is outside of %s", v, span(least, most))
	default:
		*dst = v
	}
}

func span(least, most int) string {
	if most == math.MaxInt32 {
		return fmt.Sprintf("its range: %d or more", least)
	}
	return fmt.Sprintf("its range: %d to %d", least, most)
}

func (s *section) duration(name string, dst *time.Duration, least, most time.Duration) {
	if e, ok := s.get(name); ok {
		s.durationOf(e, s.key(name), dst, least, most)
	}
}

func (s *section) durationOf(e entry, key string, dst *time.Duration, least, most time.Duration) bool {
	text, ok := scalar(e.node)
	if !ok {
		s.r.problem(e.line, key, "is %s, not a duration (try 30s)", kindOf(e.node))
		return false
	}
	d, err := ParseDuration(text)
	switch {
	case err != nil:
		s.r.problem(e.line, key, "%s", err)
	case d < least:
		s.r.problem(e.line, key, "%s is too short: the least is %s", FormatDuration(d), FormatDuration(least))
	case d > most:
		s.r.problem(e.line, key, "%s is too long: the most is %s", FormatDuration(d), FormatDuration(most))
	default:
		*dst = d
		return true
	}
	return false
}

// durations reads a list of durations; a single one is a list of one.
func (s *section) durations(name string, dst *[]time.Duration, least, most time.Duration) {
	e, ok := s.get(name)
	if !ok {
		return
	}
	items := s.items(e)
	if len(items) == 0 {
		s.r.problem(e.line, s.key(name), "is empty: it needs at least one duration")
		return
	}
	list := make([]time.Duration, len(items))
	for i, it := range items {
		if !s.durationOf(it, fmt.Sprintf("%s[%d]", s.key(name), i), &list[i], least, most) {
			return
		}
	}
	*dst = list
}

func (s *section) size(name string, dst *int64, least int64) {
	e, ok := s.get(name)
	if !ok {
		return
	}
	text, ok := scalar(e.node)
	if !ok {
		s.r.problem(e.line, s.key(name), "is %s, not a size (try 64MiB)", kindOf(e.node))
		return
	}
	v, err := ParseSize(text)
	switch {
	case err != nil:
		s.r.problem(e.line, s.key(name), "%s", err)
	case v < least:
		s.r.problem(e.line, s.key(name), "%s is too small: the least is %s", text, FormatSize(least))
	default:
		*dst = v
	}
}

func (s *section) texts(name string, dst *[]string) {
	e, ok := s.get(name)
	if !ok {
		return
	}
	list := []string{}
	for i, it := range s.items(e) {
		v, ok := scalar(it.node)
		if !ok {
			s.r.problem(it.line, fmt.Sprintf("%s[%d]", s.key(name), i), "is %s, not a text", kindOf(it.node))
			return
		}
		list = append(list, v)
	}
	*dst = list
}

func (s *section) choice(name string, dst *string, choices ...string) {
	e, ok := s.get(name)
	if !ok {
		return
	}
	v, _ := scalar(e.node)
	for _, c := range choices {
		if strings.EqualFold(v, c) {
			*dst = c
			return
		}
	}
	hint := ""
	if near := Suggest(v, choices); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	s.r.problem(e.line, s.key(name), "%s is none of %s%s", describe(e.node), strings.Join(choices, ", "), hint)
}

// items returns the elements of a list, or the value itself as a list of one.
func (s *section) items(e entry) []entry {
	seq, ok := e.node.(*ast.SequenceNode)
	if !ok {
		return []entry{e}
	}
	list := make([]entry, len(seq.Values))
	for i, n := range seq.Values {
		list[i] = entry{key: e.key, line: lineOf(n), node: s.r.resolve(n)}
	}
	return list
}

// plain converts a node to what encoding/json would make of it.
func (r *reader) plain(n ast.Node, depth int) (any, error) {
	if r.nodes++; r.nodes > maxPlainNodes || depth > 32 {
		return nil, fmt.Errorf("is too large or too deep")
	}
	n = r.resolve(n)
	switch t := n.(type) {
	case nil, *ast.NullNode:
		return nil, nil
	case *ast.BoolNode:
		return t.Value, nil
	case *ast.IntegerNode:
		return t.Value, nil
	case *ast.FloatNode:
		return t.Value, nil
	case *ast.SequenceNode:
		list := make([]any, len(t.Values))
		for i, v := range t.Values {
			p, err := r.plain(v, depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = p
		}
		return list, nil
	}
	if v, ok := scalar(n); ok {
		return v, nil
	}
	list, ok := r.entries(n, 0)
	if !ok {
		return nil, fmt.Errorf("is not a value")
	}
	m := map[string]any{}
	for _, e := range list {
		p, err := r.plain(e.node, depth+1)
		if err != nil {
			return nil, err
		}
		m[e.key] = p
	}
	return m, nil
}

// describe quotes a scalar and names anything else.
func describe(n ast.Node) string {
	if v, ok := scalar(n); ok {
		return strconv.Quote(v)
	}
	return kindOf(n)
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "a table of keys"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode:
		return "a number"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	}
	return "not a value"
}
