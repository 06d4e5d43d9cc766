package shell

import (
	"slices"
	"strings"
)

// fields inspects one command with its arguments.
func (i *inspection) fields(words []word) {
	if len(words) == 0 {
		return
	}
	if i.nodes++; i.nodes > maxNodes {
		return
	}
	if i.wraps == maxWraps {
		i.ask("commands are nested too deeply to be read")
		return
	}
	i.wraps++
	defer func() { i.wraps-- }()
	name := words[0]
	if !name.known || name.glob && name.text != "[" && name.text != "[[" {
		i.ask("the name of a command is not known before it runs")
	}
	if name.text == "" || strings.ContainsRune(name.text, unknown) {
		return
	}
	base, args := name.base(), words[1:]
	if i.executable[strings.TrimPrefix(name.text, "./")] {
		i.ask("runs a file that was just made executable")
	}
	if w, ok := wrappers[base]; ok {
		i.wrapped(base, w, args)
		return
	}
	if rule, ok := rules[base]; ok {
		rule(i, base, args)
	}
	if prefix, _, ok := strings.Cut(base, "."); ok && prefix == "mkfs" || strings.HasPrefix(base, "mkfs") {
		i.refuse("makes a file system (%s)", base)
	}
	if interpreter := versionless(base); interpreter != base {
		if rule, ok := rules[interpreter]; ok {
			rule(i, interpreter, args)
		}
	}
	i.arguments(base, args)
}

// versionless turns python3.12 into python.
func versionless(name string) string {
	return strings.TrimRight(name, "0123456789.")
}

// looks are commands that show names and sizes of files, not what is in them.
var looks = []string{"ls", "stat", "test", "[", "echo", "printf", "du", "file", "basename", "dirname", "realpath", "readlink", "which", "find", "cd", "pushd", "mkdir", "rmdir", "touch", "true", "false", "type"}

// evaluators are builtins that evaluate a part of their arguments as arithmetic, and with it commands inside.
var evaluators = []string{"test", "[", "let", "printf", "read", "unset", "declare", "typeset", "local", "export", "readonly", "wait"}

// arguments looks at what any command may be given: files with credentials, the databases, text that runs.
func (i *inspection) arguments(name string, args []word) {
	for _, a := range args {
		if slices.Contains(evaluators, name) && a.known && hidden(a.text) {
			i.ask("gives %s a text that holds a command", name)
		}
		if slices.Contains(looks, name) {
			continue
		}
		i.reads(name+" reads", a)
		if _, value, ok := strings.Cut(a.text, "="); ok {
			i.reads(name+" reads", word{text: value, known: a.known, glob: a.glob})
		}
		if file, ok := strings.CutPrefix(a.text, "@"); ok { // as curl has it
			i.reads(name+" reads", word{text: file, known: a.known})
		}
	}
}

// options are the arguments of a command, taken apart as getopt does.
type options struct {
	short    string            // letters in the order they came
	long     []string          // without the dashes and the value
	values   map[string]string // of options that take one, by letter or name
	operands []word
	loose    bool // something before the operands may be an option
}

// leading takes apart only the options before the first operand: what follows is another command's.
func leading(args []word, valued string) options {
	return takeApart(args, valued, true)
}

// getopt takes arguments apart. valued names the short options that take a value and the long ones that do, as
// "ab:long:other".
func getopt(args []word, valued string) options {
	return takeApart(args, valued, false)
}

func takeApart(args []word, valued string, first bool) options {
	names := strings.Split(valued, ":")
	letters, longs := names[0], names[1:]
	o := options{values: map[string]string{}}
	for n := 0; n < len(args); n++ {
		a := args[n]
		switch {
		case a.text == "--" && a.known:
			o.operands = append(o.operands, args[n+1:]...)
			return o
		case strings.HasPrefix(a.text, "--"):
			name, value, has := strings.Cut(a.text[2:], "=")
			o.long = append(o.long, name)
			if !has && slices.Contains(longs, name) && n+1 < len(args) {
				n++
				value = args[n].text
			}
			o.values[name] = value
			o.loose = o.loose || a.loose
		case len(a.text) > 1 && a.text[0] == '-':
			o.loose = o.loose || a.loose
			for k := 1; k < len(a.text); k++ {
				letter := a.text[k : k+1]
				o.short += letter
				if !strings.Contains(letters, letter) {
					continue
				}
				value := a.text[k+1:]
				if value == "" && n+1 < len(args) {
					n++
					value = args[n].text
				}
				o.values[letter] = value
				break
			}
		case first:
			o.loose = o.loose || a.loose
			o.operands = args[n:]
			return o
		default:
			o.loose = o.loose || a.loose
			o.operands = append(o.operands, a)
		}
	}
	return o
}

// has says whether an option was given, by a letter or by a long name or a beginning of it.
func (o options) has(letters string, long string) bool {
	if strings.ContainsAny(o.short, letters) {
		return true
	}
	return long != "" && slices.ContainsFunc(o.long, func(l string) bool { return l != "" && strings.HasPrefix(long, l) })
}

// A wrapper is a command that runs another one, which it is given as its arguments.
type wrapper struct {
	valued   string // options of its own that take a value, as for getopt
	plain    string // letters of options of its own that take none
	skip     int    // operands of its own before the command
	assigns  bool   // takes assignments before the command
	extra    bool   // adds arguments that are not known
	anything bool   // has more long options than are listed
	ask      string // what is said about every use
}

var wrappers = map[string]wrapper{
	"env":       {valued: "uCSP:unset:chdir:split-string", plain: "i0v", assigns: true, anything: true},
	"sudo":      {valued: "ughpCrtTUDR:user:group:host:prompt:close-from:role:type:other-user:chdir:chroot", plain: "EHPnkKbAsSile", assigns: true, anything: true},
	"doas":      {valued: "uC", plain: "nsL"},
	"nohup":     {},
	"setsid":    {plain: "cfw", anything: true},
	"nice":      {valued: "n:adjustment", plain: "0123456789", anything: true},
	"ionice":    {valued: "cnpPu:class:classdata:pid", plain: "t", anything: true},
	"timeout":   {valued: "ks:kill-after:signal", plain: "fpv", skip: 1, anything: true},
	"stdbuf":    {valued: "ioe:input:output:error", anything: true},
	"time":      {valued: "fo:format:output", plain: "avpq", anything: true},
	"chrt":      {plain: "abdfimoprRv", skip: 1, anything: true},
	"taskset":   {plain: "acp", skip: 1, anything: true},
	"command":   {plain: "pvV"},
	"builtin":   {},
	"exec":      {valued: "a", plain: "cl"},
	"xargs":     {valued: "adEILnPs:arg-file:delimiter:max-args:max-procs:replace:max-lines:max-chars:process-slot-var", plain: "0rtxopi", extra: true, anything: true},
	"parallel":  {valued: "jNnIaS:jobs:max-args:arg-file", plain: "0kmXu", extra: true, anything: true},
	"chroot":    {valued: ":userspec:groups", skip: 1, anything: true},
	"unshare":   {valued: "SGRw", plain: "mufipnUCTrhc", anything: true},
	"nsenter":   {valued: "tSGrw", plain: "aFmuinpUCT", anything: true, ask: "enters the name spaces of another process"},
	"strace":    {valued: "aeobpPsSuEIOX", plain: "cCdDfFhikqrtTvVwxyYzZ", anything: true},
	"ltrace":    {valued: "aeolnpsuADFx", plain: "bcCfhiLrStTV", anything: true},
	"busybox":   {},
	"toybox":    {},
	"fakeroot":  {anything: true},
	"catchsegv": {}, "unbuffer": {plain: "p"}, "rlwrap": {anything: true}, "winpty": {}, "caffeinate": {plain: "disumt"},
	"dbus-run-session": {anything: true},
	"xvfb-run":         {valued: "efnpsw", plain: "al", anything: true},
	"firejail":         {anything: true},
	"setpriv":          {anything: true},
	"prlimit":          {valued: "po", anything: true},
	"choom":            {valued: "np"},
	"numactl":          {valued: "NmCip", anything: true},
	"systemd-run":      {valued: "pEHMu:unit:property:description:slice:uid:gid:nice:working-directory:setenv", plain: "dtPqGS", anything: true, ask: "starts a unit that outlives the command"},
	"systemd-inhibit":  {anything: true},
	"pkexec":           {valued: ":user", anything: true, ask: "runs a command as another user"},
	"run0":             {valued: "uDg", anything: true, ask: "runs a command as another user"},
	"start-stop-daemon": {
		valued: "xapcugnrNRkKT:exec:startas:pidfile:chuid:name:user:group:chdir:chroot", plain: "SKtbmoqv", anything: true, ask: "starts or stops a service",
	},
}

// wrapped inspects the command inside a wrapper. Where the wrapper's own options cannot be told from the command,
// every possible beginning of it is inspected.
func (i *inspection) wrapped(name string, w wrapper, args []word) {
	if w.ask != "" {
		i.ask("%s", w.ask)
	}
	i.wrapperOptions(name, args)
	if name == "command" && len(args) > 0 && strings.HasPrefix(args[0].text, "-") && strings.ContainsAny(args[0].text, "vV") {
		return // only says what the name means
	}
	start, sure := w.command(args)
	if !sure {
		i.ask("the command that %s runs is not known before it runs", name)
	}
	if !sure || w.guessed(args[:start]) {
		i.anywhere(args)
	}
	if !sure {
		return
	}
	inner := slices.Clone(args[start:])
	if w.extra && len(inner) > 0 {
		inner = append(inner, word{text: string(unknown), loose: true})
	}
	if slices.Contains([]string{"nohup", "setsid"}, name) {
		i.daemon(inner)
	}
	i.fields(inner)
}

// anywhere inspects every word that may be the beginning of a command.
func (i *inspection) anywhere(args []word) {
	for n := range args {
		base := args[n].base()
		if _, wraps := wrappers[base]; wraps || rules[base] != nil || strings.HasPrefix(base, "mkfs") {
			i.fields(args[n:])
		}
	}
}

// guessed says whether there is an option among own whose value may be the next word.
func (w wrapper) guessed(own []word) bool {
	longs := strings.Split(w.valued, ":")[1:]
	return slices.ContainsFunc(own, func(a word) bool {
		return strings.HasPrefix(a.text, "--") && !strings.Contains(a.text, "=") && len(a.text) > 2 && !slices.Contains(longs, a.text[2:])
	})
}

// command returns where the inner command begins, and whether that is sure.
func (w wrapper) command(args []word) (start int, sure bool) {
	names := strings.Split(w.valued, ":")
	letters, longs := names[0], names[1:]
	skip := w.skip
	for n := 0; n < len(args); n++ {
		a := args[n]
		text := a.text
		switch {
		case a.loose:
			return n, false
		case text == "--":
			return min(n+1+skip, len(args)), true
		case w.assigns && text == "-": // env's short form of -i
		case strings.HasPrefix(text, "--"):
			long, _, has := strings.Cut(text[2:], "=")
			valued := slices.Contains(longs, long)
			if !valued && !w.anything {
				return n, false
			}
			if valued && !has {
				n++
			}
		case len(text) > 1 && text[0] == '-' && strings.Trim(text[1:], "0123456789") == "": // nice -5
		case len(text) > 1 && text[0] == '-':
			k := strings.IndexAny(text[1:], letters)
			if letters == "" {
				k = -1
			}
			own := text[1:]
			if k >= 0 {
				own = text[1 : 1+k]
				if k == len(text)-2 {
					n++ // the value is the next argument
				}
			}
			if strings.Trim(own, w.plain) != "" {
				return n, false
			}
		case w.assigns && strings.Contains(text, "=") && !strings.HasPrefix(text, "="):
		case skip > 0:
			skip--
		default:
			return n, true
		}
	}
	return len(args), true
}

// wrapperOptions looks at options of wrappers that matter by themselves.
func (i *inspection) wrapperOptions(name string, args []word) {
	w := wrappers[name]
	own, sure := w.command(args)
	if !sure {
		own = len(args)
	}
	o := getopt(args[:min(own, len(args))], w.valued)
	switch name {
	case "sudo":
		if o.has("SAsilbe", "") || slices.ContainsFunc(o.long, func(l string) bool {
			return slices.Contains([]string{"stdin", "askpass", "shell", "login", "list", "background", "edit"}, l)
		}) {
			i.ask("uses sudo for a shell, a list or a password")
		}
	case "env":
		if text, ok := o.values["S"]; ok {
			i.text(text, i.depth+1)
		}
		if text, ok := o.values["split-string"]; ok {
			i.text(text, i.depth+1)
		}
		for _, a := range o.operands {
			if v, _, ok := strings.Cut(a.text, "="); ok && slices.Contains(riskyVariables, v) {
				i.ask("sets %s, which changes what other commands do", v)
			}
		}
	case "xargs", "parallel":
		if own < len(args) && slices.Contains([]string{o.values["I"], o.values["replace"], "{}", "%"}, args[own].text) {
			i.ask("the command that %s runs is not known before it runs", name)
		}
	}
}
