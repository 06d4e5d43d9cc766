package shell

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// shell is for shells: what they are given as text is read too.
func (i *inspection) shell(name string, args []word) {
	o := getopt(args, "cOo:rcfile:init-file:init-command:command")
	code, given := o.values["c"]
	for _, long := range []string{"command", "init-command"} {
		if text, ok := o.values[long]; ok {
			code, given = text, true
		}
	}
	switch {
	case given || o.has("c", ""):
		i.ask("runs a text as a command (%s -c)", name)
		i.text(code, i.depth+1)
	case len(o.operands) == 0 || o.has("s", "") || o.operands[0].text == "-" || strings.HasPrefix(o.operands[0].text, "/dev/"):
		if o.has("", "version") || o.has("", "help") {
			return
		}
		i.ask("runs its input as commands (%s)", name)
	case !o.operands[0].known:
		i.ask("%s runs a script that is not known before it runs", name)
	case i.executable[strings.TrimPrefix(o.operands[0].text, "./")]:
		i.ask("runs a file that was just made executable")
	}
	i.unknownOptions(name, o)
}

// interpreter is for languages that can run anything.
func (i *inspection) interpreter(name string, args []word) {
	code := "ec"
	switch name {
	case "perl":
		code = "eE"
	case "ruby", "node", "nodejs", "bun", "elixir", "groovy", "scala", "R", "Rscript", "julia", "osascript", "guile", "raku":
		code = "ep"
	case "php":
		code = "rBRE"
	case "ghc", "jshell", "racket":
		code = "e"
	}
	for _, a := range args {
		if a.loose {
			i.ask("%s may get options or code that are not known before it runs", name)
			return
		}
		if a.text == "-" || strings.HasPrefix(a.text, "/dev/") {
			break
		}
		if !strings.HasPrefix(a.text, "-") {
			if a.text == "eval" || a.text == "repl" { // deno
				i.ask("runs a text as code (%s %s)", name, a.text)
			}
			return
		}
		if strings.HasPrefix(a.text, "--") {
			if long := a.text[2:]; slices.ContainsFunc([]string{"eval", "print", "run", "execute", "command"}, func(l string) bool { return strings.HasPrefix(long, l) }) {
				i.ask("runs a text as code (%s %s)", name, a.text)
				return
			}
			if slices.Contains([]string{"--version", "--help"}, a.text) {
				return
			}
			continue
		}
		if a.text == "-m" || name == "php" && a.text == "-f" { // python runs a module
			return
		}
		if slices.Contains([]string{"-V", "-v", "-h"}, a.text) {
			return
		}
		if strings.ContainsAny(a.text[1:], code) {
			i.ask("runs a text as code (%s %s)", name, a.text)
			return
		}
	}
	i.ask("runs its input as code (%s)", name)
}

func (i *inspection) eval(_ string, args []word) {
	i.ask("evaluates a text as a command (eval)")
	i.text(joined(args), i.depth+1)
}

func (i *inspection) source(name string, args []word) {
	if len(args) > 0 && (!args[0].known || strings.HasPrefix(args[0].text, "/dev/") || strings.HasPrefix(args[0].text, "/proc/")) {
		i.ask("%s runs a script that is not known before it runs", name)
	}
}

func (i *inspection) trap(_ string, args []word) {
	o := getopt(args, "")
	if len(o.operands) < 2 {
		return
	}
	if !o.operands[0].known {
		i.ask("trap runs a command that is not known before it runs")
	}
	i.text(o.operands[0].text, i.depth+1)
}

func (i *inspection) alias(_ string, args []word) {
	for _, a := range args {
		if _, command, ok := strings.Cut(a.text, "="); ok {
			i.ask("gives commands other names (alias)")
			i.text(command, i.depth+1)
		}
	}
}

func (i *inspection) enable(_ string, args []word) {
	if getopt(args, "f").has("f", "") {
		i.ask("loads code into the shell (enable -f)")
	}
}

// callback is for builtins that can be given a command to call.
func (i *inspection) callback(name string, args []word) {
	o := getopt(args, "CFxcdnOstu")
	for _, v := range []string{"C", "F", "x"} {
		if text, ok := o.values[v]; ok {
			i.ask("%s calls a command by itself", name)
			i.text(text, i.depth+1)
		}
	}
}

// lazily compiles an expression at its first use: a worker serves half a millisecond sooner without these.
func lazily(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// awkRuns finds programs that start commands, or pipe into or out of one.
var awkRuns = lazily(`\bsystem\s*\(|\|\s*&?\s*("|getline|[A-Za-z_])|\|&|"\s*\|\s*getline|@load|@include|>\s*("|[A-Za-z_$])`)

func (i *inspection) awk(name string, args []word) {
	o := getopt(args, "Fvfilee:file:assign:field-separator:include:load:source")
	if o.has("", "load") || o.has("", "include") || o.has("li", "") {
		i.ask("%s loads code", name)
	}
	program := o.values["e"] + o.values["source"]
	switch {
	case o.values["f"] != "" || o.values["file"] != "":
		return // a script file, like that of any interpreter
	case program == "" && len(o.operands) > 0:
		if !o.operands[0].known {
			i.ask("%s runs a program that is not known before it runs", name)
		}
		program = o.operands[0].text
	}
	if awkRuns().MatchString(program) {
		i.ask("%s runs a command or writes a file", name)
	}
}

// sedRuns finds the commands e and w, and the flags of s that do the same.
var (
	sedRuns  = lazily(`(^|[;{}\n]|[0-9$/,!])\s*(e(\s|$)|[wW]\s*[^\s;}])`)
	sedFlags = lazily(`(^|[;{}\n0-9$/]\s*)s(.).*[^\\].[gpiImM0-9]*[ew]`)
)

func (i *inspection) sed(name string, args []word) {
	o := getopt(args, "efl:expression:file:line-length")
	script := o.values["e"] + o.values["expression"]
	files := o.operands
	if script == "" && o.values["f"] == "" && o.values["file"] == "" && len(files) > 0 {
		if !files[0].known && files[0].loose {
			i.ask("sed runs a script that is not known before it runs")
		}
		script, files = files[0].text, files[1:]
	}
	if sedRuns().MatchString(script) || sedFlag(script) {
		i.ask("sed runs a command or writes a file")
	}
	if o.has("i", "in-place") || strings.Contains(o.short, "i") {
		for _, f := range files {
			i.writes(name+" changes", f)
		}
	}
}

// sedFlag looks for e or w among the flags of a single substitution.
func sedFlag(script string) bool {
	script = strings.TrimSpace(script)
	if !sedFlags().MatchString(script) || len(script) < 2 {
		return false
	}
	k := strings.IndexByte(script, 's')
	if k < 0 || k+1 >= len(script) {
		return false
	}
	parts := strings.Split(script[k+2:], script[k+1:k+2])
	if len(parts) < 3 {
		return false
	}
	flags, _, _ := strings.Cut(parts[2], ";")
	return strings.ContainsAny(strings.TrimSpace(flags), "ew")
}

func (i *inspection) editor(name string, args []word) {
	for _, a := range args {
		if a.text == "-c" || strings.HasPrefix(a.text, "+") || a.text == "-S" || strings.HasPrefix(a.text, "--eval") || a.text == "--cmd" || a.text == "-s" || a.text == "--batch" {
			i.ask("%s runs commands of its own", name)
		}
	}
	i.writer(name, args)
}

func (i *inspection) ssh(name string, args []word) {
	o := leading(args, "BbcDEeFIiJLlmOopQRSWw")
	option := strings.ToLower(o.values["o"])
	if strings.Contains(option, "command") || strings.Contains(option, "knownhosts=/dev/null") && strings.Contains(option, "proxy") {
		i.ask("ssh runs a command of its own choice")
	}
	if i.unknownOptions(name, o) || len(o.operands) < 2 {
		return
	}
	// The remote shell reads the rest. Its files are another machine's, but what is deleted there is gone too.
	i.text(joined(o.operands[1:]), i.depth+1)
}

// gitRuns are settings of git that name a command.
var gitRuns = lazily(`(?i)^(alias\.|core\.(sshcommand|pager|editor|fsmonitor|hookspath|askpass|gitproxy)|credential\.|diff\.|merge\.|filter\.|gpg\.|pager\.|sequence\.editor|uploadpack|receive|protocol\.ext|include\.path|includeif\.)`)

func (i *inspection) git(name string, args []word) {
	n := 0
	for ; n < len(args); n++ { // options before the subcommand
		a := args[n]
		if a.loose || !a.known {
			i.ask("git may get options or a command that are not known before it runs")
			return
		}
		if !strings.HasPrefix(a.text, "-") {
			break
		}
		if a.text == "-c" || a.text == "-C" || a.text == "--git-dir" || a.text == "--work-tree" || a.text == "--namespace" || a.text == "--exec-path" || a.text == "--config-env" {
			n++
		}
		if setting := strings.TrimPrefix(a.text, "--config-env="); a.text == "-c" && n < len(args) && gitRuns().MatchString(args[n].text) || setting != a.text && gitRuns().MatchString(setting) {
			i.ask("git runs a command of its own choice (-c)")
		}
		if strings.HasPrefix(a.text, "--exec-path=") || strings.HasPrefix(a.text, "--upload-pack") {
			i.ask("git runs a command of its own choice")
		}
	}
	if n < len(args) {
		i.gitCommand(name, args[n].text, args[n+1:])
	}
}

func (i *inspection) gitCommand(name, sub string, args []word) {
	o := getopt(args, "mCcbBstuX:message:author:date")
	loses := ""
	switch sub {
	case "reset":
		if o.has("", "hard") || o.has("", "merge") || o.has("", "keep") {
			loses = "loses changes that are not committed (git reset --hard)"
		}
	case "push":
		if o.has("f", "") || slices.ContainsFunc(o.long, func(l string) bool {
			return strings.HasPrefix(l, "force") || l == "mirror" || strings.HasPrefix("delete", l) || l == "prune"
		}) || o.has("d", "") || slices.ContainsFunc(o.operands, func(w word) bool { return strings.HasPrefix(w.text, "+") || strings.HasPrefix(w.text, ":") }) {
			loses = "overwrites or deletes what others may have (git push --force)"
		}
	case "clean":
		if o.has("fxX", "force") {
			loses = "deletes files that are not in the repository (git clean -f)"
		}
	case "branch":
		if o.has("D", "") || o.has("d", "delete") && o.has("f", "force") {
			loses = "deletes a branch that may not be merged (git branch -D)"
		}
	case "checkout", "restore", "switch":
		if o.has("f", "force") || o.has("", "discard-changes") {
			loses = "loses changes that are not committed (git " + sub + ")"
		}
	case "stash":
		if len(o.operands) > 0 && (o.operands[0].text == "drop" || o.operands[0].text == "clear") {
			loses = "deletes stashed changes"
		}
	case "reflog", "filter-branch", "filter-repo", "update-ref":
		if sub != "reflog" || len(o.operands) > 0 && o.operands[0].text != "show" {
			loses = "rewrites history (git " + sub + ")"
		}
	case "config":
		if len(o.operands) > 1 && (gitRuns().MatchString(o.operands[0].text) || strings.HasPrefix(o.operands[1].text, "!")) {
			loses = "makes git run a command by itself (git config)"
		}
	case "rebase", "bisect", "submodule", "difftool", "mergetool":
		if o.has("x", "exec") || len(o.operands) > 0 && (o.operands[0].text == "run" || o.operands[0].text == "foreach") {
			loses = "git runs a command of its own choice (git " + sub + ")"
		}
	default:
		if o.has("", "upload-pack") || o.has("", "receive-pack") || sub == "grep" && o.has("O", "open-files-in-pager") {
			loses = "git runs a command of its own choice"
		}
		if slices.ContainsFunc(o.operands, func(w word) bool { return strings.HasPrefix(w.text, "ext::") }) {
			loses = "git runs a command of its own choice"
		}
		if loses == "" {
			return // unknown operands of other commands do no harm
		}
	}
	if loses != "" {
		i.ask("%s", loses)
	}
	i.unknownOptions(name+" "+sub, o)
}

// Statements of SQL that lose data.
var (
	sqlDrop     = lazily(`(?is)\bdrop\s+(table|database|schema|view|index|user|role|collection|keyspace)\b|\btruncate\s+(table\s+)?\w|\balter\s+table\s+\S+\s+drop\b`)
	sqlDelete   = lazily(`(?is)\bdelete\s+from\s+[^;]*`)
	sqlUpdate   = lazily(`(?is)\bupdate\s+\S+\s+set\s+[^;]*`)
	sqlWhere    = lazily(`(?is)\bwhere\b`)
	sqlExecutes = lazily(`(?m)^\s*[.\\](shell|system|!|output|once|import|save|restore|read)\b|^\s*\\!|\bxp_cmdshell\b|(?i)\bcopy\s+.*\bprogram\b|(?i)\binto\s+(outfile|dumpfile)\b|(?i)\bload_extension\b`)
)

func (i *inspection) sql(text string) {
	if sqlDrop().MatchString(text) {
		i.ask("drops or empties a table or a database")
	}
	for _, re := range []*regexp.Regexp{sqlDelete(), sqlUpdate()} {
		for _, statement := range re.FindAllString(text, -1) {
			if !sqlWhere().MatchString(statement) {
				i.ask("deletes or changes all rows of a table (no WHERE)")
			}
		}
	}
	if sqlExecutes().MatchString(text) {
		i.ask("runs a command or writes a file from SQL")
	}
}

func (i *inspection) sqlClient(name string, args []word) {
	for _, a := range args {
		i.sql(a.text)
		if !a.known && (a.loose || strings.Contains(a.text, " ")) {
			i.ask("%s gets statements that are not known before it runs", name)
		}
	}
}
