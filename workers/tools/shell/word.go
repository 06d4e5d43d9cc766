package shell

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// unknown stands in a word's text for what is known only when the command runs.
const unknown = '\uFFFC'

// maxBraces bounds what a brace expansion may grow to.
const maxBraces = 256

// A word is what the shell makes of one field of a command, as far as it can be known.
type word struct {
	text  string
	known bool // text is what the shell will use
	glob  bool // holds a pattern for file names
	loose bool // may turn out to be an option, or several fields
}

// base is the word as the name of a command, without its folder.
func (w word) base() string { return path.Base(w.text) }

// words expands the fields of a command: braces, and ${IFS} where it stands for a space.
func (i *inspection) words(args []*syntax.Word) []word {
	var all []word
	for _, arg := range args {
		for _, w := range braces(arg, !i.judge.POSIX) {
			if w == nil {
				all = append(all, word{text: string(unknown), loose: true})
				continue
			}
			all = append(all, splitIFS(i.word(w))...)
		}
	}
	return all
}

// separator marks an unquoted ${IFS} inside a word's text until the word is split there.
const separator = '\uFFF9'

func splitIFS(w word) []word {
	if !strings.ContainsRune(w.text, separator) {
		return []word{w}
	}
	var all []word
	for _, text := range strings.FieldsFunc(w.text, func(r rune) bool { return r == separator }) {
		part := w
		part.text = text
		all = append(all, part)
	}
	return all
}

// braces expands {a,b} and {1..3}. A word that would grow too much is given as nil.
func braces(arg *syntax.Word, on bool) []*syntax.Word {
	if !on {
		return []*syntax.Word{arg}
	}
	// The expansion changes the word that it is given.
	split := &syntax.Word{Parts: append([]syntax.WordPart(nil), arg.Parts...)}
	if !syntax.SplitBraces(split) {
		return []*syntax.Word{arg}
	}
	var all []*syntax.Word
	for w, err := range expand.BracesSeq(nil, split) {
		if err != nil || len(all) == maxBraces {
			return append(all, nil)
		}
		all = append(all, w)
	}
	return all
}

// word folds what is known of a word into one text.
func (i *inspection) word(w *syntax.Word) word {
	b := &folding{inspection: i, known: true}
	for n, part := range w.Parts {
		b.part(part, n == 0, false)
	}
	return word{text: b.text.String(), known: b.known, glob: b.glob, loose: b.loose}
}

type folding struct {
	inspection *inspection
	text       strings.Builder
	known      bool
	glob       bool
	loose      bool
}

// open marks what follows as known only when it runs.
func (b *folding) open(quoted bool) {
	b.known = false
	// In quotes it stays one field and is an option only if it comes first.
	if !quoted || b.text.Len() == 0 {
		b.loose = true
	}
}

func (b *folding) part(part syntax.WordPart, first, quoted bool) {
	switch p := part.(type) {
	case *syntax.Lit:
		b.literal(p.Value, first, quoted)
	case *syntax.SglQuoted:
		text := p.Value
		if p.Dollar {
			text = decodeQuoted(p)
		}
		b.text.WriteString(text)
	case *syntax.DblQuoted:
		for n, inner := range p.Parts {
			b.part(inner, first && n == 0, true)
		}
	case *syntax.ParamExp:
		b.parameter(p, quoted)
	case *syntax.CmdSubst:
		b.open(quoted)
		b.substitution(p)
	case *syntax.ExtGlob:
		b.glob = true
		b.open(quoted)
		b.text.WriteRune(unknown)
	default: // arithmetic, process substitution, and what the parser may learn
		b.open(quoted)
		b.text.WriteRune(unknown)
	}
}

// literal removes escapes and finds what is special outside of quotes.
func (b *folding) literal(s string, first, quoted bool) {
	if first && !quoted && strings.HasPrefix(s, "~") {
		s = b.tilde(s)
	}
	for n := 0; n < len(s); n++ {
		c := s[n]
		if c == '\\' && n+1 < len(s) {
			next := s[n+1]
			if !quoted || strings.IndexByte("$`\"\\\n", next) >= 0 {
				n++
				if next != '\n' {
					b.text.WriteByte(next)
				}
				continue
			}
		}
		if !quoted && (c == '*' || c == '?' || c == '[') {
			b.glob = true
		}
		b.text.WriteByte(c)
	}
}

// tilde replaces a leading ~ and ~user.
func (b *folding) tilde(s string) string {
	user, rest, found := strings.Cut(s[1:], "/")
	if found {
		rest = "/" + rest
	}
	switch user {
	case "":
		return b.inspection.judge.Files.User + rest
	case "+":
		return b.inspection.judge.Dir + rest
	case "root":
		return "/root" + rest
	}
	return "/home/" + user + rest
}

// parameter folds $HOME and defaults. Everything else is known only when it runs.
func (b *folding) parameter(p *syntax.ParamExp, quoted bool) {
	plain := p.Param != nil && p.Exp == nil && p.Slice == nil && p.Repl == nil && p.Index == nil && !p.Excl && !p.Length && p.Names == 0
	if plain {
		switch p.Param.Value {
		case "HOME":
			b.text.WriteString(b.inspection.judge.Files.User)
			return
		case "PWD":
			b.text.WriteString(b.inspection.judge.Dir)
			b.known = false
			return
		case "!", "?", "#", "$", "PPID", "UID", "EUID", "RANDOM", "SECONDS", "LINENO":
			b.known = false // a number, so neither an option nor several fields
			b.text.WriteRune(unknown)
			return
		case "IFS":
			if !quoted {
				b.known = false
				b.text.WriteRune(separator)
				return
			}
		}
	}
	b.open(quoted)
	if p.Exp != nil && p.Exp.Word != nil {
		switch p.Exp.Op {
		case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull, syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
			for _, part := range p.Exp.Word.Parts {
				b.part(part, false, quoted)
			}
			return
		}
	}
	b.text.WriteRune(unknown)
}

// substitution folds $(echo rm), so that the floor sees through it. It stays unknown all the same.
func (b *folding) substitution(p *syntax.CmdSubst) {
	if len(p.Stmts) == 1 && len(p.Stmts[0].Redirs) == 0 {
		if call, ok := p.Stmts[0].Cmd.(*syntax.CallExpr); ok && len(call.Args) > 1 && (call.Args[0].Lit() == "echo" || call.Args[0].Lit() == "printf") {
			b.text.WriteString(joined(b.inspection.words(call.Args[1:])))
			return
		}
	}
	b.text.WriteRune(unknown)
}

// decodeQuoted resolves the escapes of $'…'.
func decodeQuoted(p *syntax.SglQuoted) string {
	text, err := expand.Literal(nil, &syntax.Word{Parts: []syntax.WordPart{p}})
	if err != nil {
		return p.Value
	}
	return text
}
