// Package shell judges a command line before it is run: allowed, to be asked about, or refused. It reads the
// command as the shell does (mvdan.cc/sh) and so sees through lists, pipes, subshells, substitutions, quotes and
// commands that run other commands.
//
// Rules: what cannot be read is asked about, never allowed. The name of a command that is known only when it runs
// is asked about, and so are unknown options of a command that has a rule. The floor (see refuse* in the rules)
// holds whatever a person or the configuration says. This is a list of what is known to do harm, made to catch
// mistakes of a model; whoever wants to get around it can.
package shell

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
)

const (
	// maxText bounds what is parsed. A longer command is asked about unread: the parser calls itself for each
	// level of nesting, and a person cannot read that much either.
	maxText = 64 << 10
	// maxDepth bounds commands inside strings inside commands (sh -c "sh -c …").
	maxDepth = 6
	// maxNesting bounds open brackets. The parser takes time that grows with the square of them.
	maxNesting = 200
	// maxWraps bounds commands that are given to commands (env sudo nice …).
	maxWraps = 20
	// maxPaths bounds how many names are looked up on disk.
	maxPaths = 2000
	// maxReasons bounds what a person is told at once.
	maxReasons = 4
	// maxNodes bounds how much work one judgement is, nested texts included.
	maxNodes = 200_000
)

// A Judge judges command lines that are run in Dir by the shell named.
type Judge struct {
	Files *guard.Files
	Dir   string
	// POSIX is set when the shell is not bash: the same text can mean something else to it.
	POSIX bool
}

// Command rules on a command line.
func (j *Judge) Command(text string) guard.Ruling {
	i := &inspection{judge: j, dirs: []string{j.Dir}, executable: map[string]bool{}, reading: map[string]guard.Ruling{}, writing: map[string]guard.Ruling{}}
	i.text(text, 0)
	return i.ruling()
}

// An inspection is one judgement being made.
type inspection struct {
	judge      *Judge
	found      []guard.Ruling
	dirs       []string                // where a relative path may be relative to: cd commands are followed
	executable map[string]bool         // files that an earlier command made executable
	reading    map[string]guard.Ruling // what was looked up, by absolute path
	writing    map[string]guard.Ruling
	depth      int
	wraps      int
	nodes      int
}

func (i *inspection) ask(format string, a ...any) {
	i.found = append(i.found, guard.Ruling{Verdict: guard.Ask, Reason: fmt.Sprintf(format, a...)})
}

func (i *inspection) refuse(format string, a ...any) {
	i.found = append(i.found, guard.Ruling{Verdict: guard.Refuse, Reason: fmt.Sprintf(format, a...)})
}

// ruling sums up what was found: the sternest verdict, and the reasons for it.
func (i *inspection) ruling() guard.Ruling {
	var sum guard.Ruling
	for _, r := range i.found {
		sum = sum.Worse(r)
	}
	if sum.Verdict == guard.Allow {
		return sum
	}
	var reasons []string
	for _, r := range i.found {
		if r.Verdict == sum.Verdict && !slices.Contains(reasons, r.Reason) {
			reasons = append(reasons, r.Reason)
		}
	}
	if len(reasons) > maxReasons {
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and %d more", len(reasons)-maxReasons))
	}
	sum.Reason = strings.Join(reasons, "; ")
	return sum
}

// text inspects a piece of shell text.
func (i *inspection) text(text string, depth int) {
	switch {
	case depth > maxDepth:
		i.ask("commands are nested too deeply to be read")
		return
	case len(text) > maxText:
		i.ask("the command is too long to be read")
		return
	case nesting(text) > maxNesting:
		i.ask("the command is nested too deeply to be read")
		return
	case strings.ContainsRune(text, 0):
		i.ask("the command holds a NUL character")
		return
	}
	variant := syntax.LangBash
	if i.judge.POSIX {
		variant = syntax.LangPOSIX
	}
	file, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(text), "")
	if err != nil {
		i.ask("the command cannot be read: %s", strings.TrimPrefix(err.Error(), ":"))
		return
	}
	outer := i.depth
	i.depth = depth
	defer func() { i.depth = outer }()
	i.walk(file)
}

// nesting returns how many brackets are open at most, without regard to quotes.
func nesting(text string) (most int) {
	open := 0
	for _, c := range []byte(text) {
		switch c {
		case '(', '{', '[':
			open++
			most = max(most, open)
		case ')', '}', ']':
			open = max(0, open-1)
		}
	}
	return most
}

// walk inspects every command in a syntax tree, wherever it stands.
func (i *inspection) walk(root syntax.Node) {
	syntax.Walk(root, func(n syntax.Node) bool {
		if i.nodes++; i.nodes > maxNodes {
			if i.nodes == maxNodes+1 {
				i.ask("the command is too long to be read")
			}
			return false
		}
		switch n := n.(type) {
		case *syntax.Stmt:
			i.redirects(n)
		case *syntax.CallExpr:
			i.assignments(n.Assigns)
			i.fields(i.words(n.Args))
		case *syntax.DeclClause:
			i.assignments(n.Args)
		case *syntax.BinaryCmd:
			if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
				i.pipe(n.X, n.Y)
			}
		case *syntax.FuncDecl:
			i.function(n)
		case *syntax.ExtGlob:
			if hidden(n.Pattern.Value) {
				i.ask("a pattern holds a command")
			}
		}
		return true
	})
}

// hidden says whether a text holds what a shell would run if the text were evaluated.
func hidden(s string) bool {
	return strings.Contains(s, "$(") || strings.Contains(s, "`")
}

// riskyVariables change what later commands do or run.
var riskyVariables = []string{
	"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS4", "IFS", "SHELLOPTS", "BASHOPTS",
	"GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "PAGER", "EDITOR", "VISUAL", "MANPAGER", "LESSOPEN",
	"PYTHONSTARTUP", "PYTHONPATH", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "HERMES_HOME",
}

// harmlessPagers are values of such variables that everybody sets.
var harmlessPagers = []string{"", "cat", "less", "more", "vi", "vim", "nano", "true", "false", ":"}

func (i *inspection) assignments(assigns []*syntax.Assign) {
	for _, a := range assigns {
		value := word{known: true}
		if a.Value != nil {
			value = i.word(a.Value)
		}
		if a.Name == nil { // an operand of a declaration that is not a plain assignment
			i.declared(value)
			continue
		}
		if slices.Contains(riskyVariables, a.Name.Value) && !a.Naked && !(value.known && slices.Contains(harmlessPagers, value.text)) {
			i.ask("sets %s, which changes what other commands do", a.Name.Value)
		}
		if hidden(value.text) {
			i.ask("keeps a command in the variable %s", a.Name.Value)
		}
	}
}

// declared looks at an operand such as "$x" of export, which may turn out to be an assignment.
func (i *inspection) declared(w word) {
	name, _, _ := strings.Cut(w.text, "=")
	if !w.known && !strings.HasPrefix(w.text, "-") || slices.Contains(riskyVariables, name) {
		i.ask("declares a variable whose name or value is not known before it runs")
	}
}

// function finds functions that start themselves again and again.
func (i *inspection) function(f *syntax.FuncDecl) {
	if f.Name == nil {
		return
	}
	calls, multiplies := 0, false
	syntax.Walk(f.Body, func(n syntax.Node) bool {
		i.nodes++ // functions inside functions are looked at again and again
		switch n := n.(type) {
		case *syntax.Stmt:
			multiplies = multiplies || n.Background || n.Coprocess
		case *syntax.BinaryCmd:
			multiplies = multiplies || n.Op == syntax.Pipe || n.Op == syntax.PipeAll
		case *syntax.CallExpr:
			if len(n.Args) > 0 && n.Args[0].Lit() == f.Name.Value {
				calls++
			}
		}
		return true
	})
	if calls > 0 && multiplies {
		i.refuse("is a fork bomb")
	}
}

// pipe looks at what is sent into a command that runs its input.
func (i *inspection) pipe(from, to *syntax.Stmt) {
	name, ok := i.plainCommand(to)
	if !ok || !slices.Contains(shells, name) {
		return
	}
	call, ok := from.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) < 2 {
		return
	}
	if words := i.words(call.Args); words[0].text == "echo" || words[0].text == "printf" {
		i.text(joined(words[1:]), i.depth+1)
	}
}

// plainCommand returns the name of a simple command, with sudo and its like taken off.
func (i *inspection) plainCommand(s *syntax.Stmt) (string, bool) {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	words := i.words(call.Args)
	for len(words) > 1 && (slices.Contains([]string{"sudo", "env", "nohup", "command", "exec"}, words[0].base()) || strings.HasPrefix(words[0].text, "-")) {
		words = words[1:]
	}
	return words[0].base(), true
}

func joined(words []word) string {
	texts := make([]string, len(words))
	for n, w := range words {
		texts[n] = w.text
	}
	return strings.Join(texts, " ")
}

// redirects looks at where a command's input comes from and its output goes to.
func (i *inspection) redirects(s *syntax.Stmt) {
	for _, r := range s.Redirs {
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			i.hereDocument(s, r)
		case syntax.RdrIn:
			i.reads("reads from", i.word(r.Word))
		case syntax.DplIn:
		case syntax.DplOut:
			if w := i.word(r.Word); !descriptor(w.text) {
				i.target(w)
			}
		default:
			i.target(i.word(r.Word))
		}
	}
}

// descriptor says whether the operand of >& is a descriptor and not a file.
func descriptor(s string) bool {
	return s == "-" || s != "" && strings.Trim(strings.TrimSuffix(s, "-"), "0123456789") == ""
}

// target is a file that output is written to.
func (i *inspection) target(w word) {
	if !w.known {
		i.ask("writes to a file whose name is not known before it runs")
	}
	i.writes("writes to", w)
}

// hereDocument reads a text that is given to a shell as its input.
func (i *inspection) hereDocument(s *syntax.Stmt, r *syntax.Redirect) {
	name, ok := i.plainCommand(s)
	if !ok {
		return
	}
	body := r.Hdoc
	if r.Op == syntax.WordHdoc {
		body = r.Word
	}
	if body == nil {
		return
	}
	switch w := i.word(body); {
	case slices.Contains(shells, name):
		i.text(w.text, i.depth+1)
	case slices.Contains(sqlClients, name):
		i.sql(w.text)
	}
}

// paths lists what the path in a word may stand for, absolute. A word with unknown parts or patterns gives what is
// known of it.
func (i *inspection) paths(w word) []string {
	text := w.text
	if text == "" || strings.ContainsRune(text, unknown) {
		return nil
	}
	var all []string
	for _, dir := range i.dirs {
		p := text
		if rest, ok := strings.CutPrefix(p, "~/"); ok { // from if=~/x, which is expanded too
			p = filepath.Join(i.judge.Files.User, rest)
		}
		if !filepath.IsAbs(p) {
			if dir == "" {
				continue
			}
			p = filepath.Join(dir, p)
		}
		p = filepath.Clean(p)
		if w.glob {
			all = append(all, expanded(p)...)
		}
		all = append(all, p)
	}
	return all
}

// expanded lists the files that match a pattern now. A pattern of many wildcards could take for ever, and is
// looked at by its text alone.
func expanded(pattern string) []string {
	wild := 0
	for _, part := range strings.Split(pattern, "/") {
		if strings.ContainsAny(part, "*?[") {
			wild++
		}
	}
	if wild > 2 {
		return nil
	}
	found, _ := filepath.Glob(pattern)
	return found[:min(len(found), 1000)]
}

// writes reports a file that must not be written, or not without asking.
func (i *inspection) writes(does string, w word) {
	for _, p := range i.paths(w) {
		i.report(does, p, i.lookUp(i.writing, p, i.judge.Files.Writing))
	}
}

// reads reports a file that must not be read, or not without asking.
func (i *inspection) reads(does string, w word) {
	for _, p := range i.paths(w) {
		i.report(does, p, i.lookUp(i.reading, p, i.judge.Files.Reading))
	}
}

func (i *inspection) report(does, p string, r guard.Ruling) {
	if r.Verdict != guard.Allow {
		i.found = append(i.found, guard.Ruling{Verdict: r.Verdict, Reason: fmt.Sprintf("%s %s (%s)", does, p, r.Reason)})
	}
}

func (i *inspection) lookUp(known map[string]guard.Ruling, p string, rule func(string) guard.Ruling) guard.Ruling {
	r, ok := known[p]
	switch {
	case ok:
	case len(known) >= maxPaths:
		return guard.Ruling{Verdict: guard.Ask, Reason: "there are too many names to be looked up"}
	default:
		r = rule(p)
		known[p] = r
	}
	return r
}
