package shell

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
)

func (i *inspection) rm(name string, args []word) {
	o := getopt(args, "")
	recursive := o.has("rR", "recursive")
	if recursive {
		i.ask("deletes folders with all that is in them")
		if o.has("", "no-preserve-root") {
			i.refuse("deletes the whole file system")
		}
	}
	i.unknownOptions(name, o)
	for _, a := range o.operands {
		if recursive {
			i.deletes(a)
		}
		i.writes("deletes", a)
	}
}

// deletes refuses to delete what nothing comes back from.
func (i *inspection) deletes(w word) {
	for _, p := range i.directories(w) {
		if place, ok := i.vital(p); ok {
			i.refuse("deletes %s", place)
			return
		}
	}
}

// directories lists the directories whose content a word may stand for: of dir/* it is dir.
func (i *inspection) directories(w word) []string {
	text := w.text
	if w.glob {
		for _, end := range []string{"/*", "/.*", "/.[!.]*", "/?*", "/**", "/.??*"} {
			text = strings.TrimSuffix(text, end)
		}
		if slices.Contains([]string{"*", ".*", "**"}, text) {
			text = "."
		}
		if text == "" {
			text = "/"
		}
	}
	var all []string
	for _, p := range i.paths(word{text: text, glob: w.glob}) {
		all = append(all, p)
		if r := guard.Resolve(p); r != p {
			all = append(all, r)
		}
	}
	return all
}

// vital says whether p is the root, a home, or a directory of the system, or a pattern for one.
func (i *inspection) vital(p string) (place string, ok bool) {
	vital := append([]string{"/", "/home", "/root", "/var", "/opt", "/srv", "/mnt", "/media", "/Users", i.judge.Files.User, i.judge.Files.Home}, guard.SystemDirs...)
	for _, v := range vital {
		if v == "" {
			continue
		}
		if v = path.Clean(v); v == p {
			return v, true
		}
		if match, err := path.Match(p, v); err == nil && match && strings.ContainsAny(p, "*?[") {
			return v, true
		}
	}
	if dir := path.Dir(p); dir == "/home" || dir == "/Users" {
		return "the home directory " + p, true
	}
	return "", false
}

func (i *inspection) erase(name string, args []word) {
	i.ask("erases files or disks for good (%s)", name)
	i.writer(name, args)
}

// writer is for commands that change every file that they name.
func (i *inspection) writer(name string, args []word) {
	o := getopt(args, "")
	for _, a := range o.operands {
		i.writes(name+" changes", a)
	}
	if i.judge.guardsAnything(o) {
		i.unknownOptions(name, o)
	}
}

// guardsAnything says whether unknown operands of a writer matter: only if nothing is known of them.
func (*Judge) guardsAnything(o options) bool {
	return slices.ContainsFunc(o.operands, func(w word) bool { return w.loose && strings.HasPrefix(w.text, string(unknown)) })
}

// copier is for commands whose last operand is where something goes to.
func (i *inspection) copier(name string, args []word) {
	o := getopt(args, "tSegm:target-directory:suffix:rsh:rsync-path:mode:owner:group")
	if name == "rsync" || name == "scp" {
		if o.has("", "rsh") || o.has("", "rsync-path") || name == "rsync" && o.values["e"] != "" && !strings.HasPrefix(o.values["e"], "ssh") || name == "scp" && o.has("S", "") {
			i.ask("%s runs a command of its own choice", name)
		}
		if slices.ContainsFunc(o.long, func(l string) bool { return strings.HasPrefix(l, "del") || l == "remove-source-files" }) {
			i.ask("%s deletes files", name)
		}
	}
	targets := o.operands
	if len(targets) > 1 {
		targets = targets[len(targets)-1:]
	}
	for _, v := range []string{"t", "target-directory"} {
		if dir, ok := o.values[v]; ok {
			targets = append(targets, word{text: dir, known: true})
		}
	}
	for _, t := range targets {
		if host, _, remote := strings.Cut(t.text, ":"); remote && !strings.Contains(host, "/") {
			continue // on another machine
		}
		i.writes(name+" writes", t)
		i.into(name, t, o.operands[:max(0, len(o.operands)-1)])
	}
	if name == "mv" && len(o.operands) > 1 {
		for _, from := range o.operands[:len(o.operands)-1] {
			i.moves(from)
		}
	}
	i.unknownOptions(name, o)
}

// into looks at what a copy is called in a folder. A name alone does not make it a credential.
func (i *inspection) into(name string, folder word, files []word) {
	for _, f := range files {
		if strings.ContainsRune(f.text, unknown) || f.glob {
			continue
		}
		for _, p := range i.paths(word{text: folder.text + "/" + path.Base(f.text)}) {
			switch r := i.lookUp(i.writing, p, i.judge.Files.Writing); {
			case i.judge.Files.Database(p):
				i.refuse("%s writes %s (%s)", name, p, r.Reason)
			case r.Verdict != guard.Allow:
				i.ask("%s writes %s (%s)", name, p, r.Reason)
			}
		}
	}
}

func (i *inspection) moves(from word) {
	i.writes("mv takes away", from)
	for _, p := range i.directories(from) {
		if place, ok := i.vital(p); ok {
			i.ask("moves %s away", place)
		}
	}
}

func (i *inspection) chmod(name string, args []word) {
	o := getopt(args, "")
	if len(o.operands) > 0 {
		mode := o.operands[0].text
		if worldWritable(mode) || slices.ContainsFunc(args, func(a word) bool {
			return worldWritable(strings.TrimLeft(a.text, "-")) && strings.HasPrefix(a.text, "-")
		}) {
			i.ask("makes files writable by everybody")
		}
		if strings.Contains(mode, "s") && !strings.Contains(mode, "-s") || len(mode) == 4 && strings.ContainsAny(mode[:1], "2467") && strings.Trim(mode, "01234567") == "" {
			i.ask("lets files run with the rights of their owner")
		}
		for _, a := range o.operands[1:] {
			i.writes("chmod changes", a)
			if o.has("R", "recursive") {
				i.wholesale(name, a)
			}
			if strings.Contains(mode, "x") || strings.ContainsAny(mode, "1357") {
				i.executable[strings.TrimPrefix(a.text, "./")] = true
			}
		}
	}
	i.unknownOptions(name, o)
}

// worldWritable reads a mode as chmod does.
func worldWritable(mode string) bool {
	if strings.Trim(mode, "01234567") == "" {
		return mode != "" && strings.ContainsRune("2367", rune(mode[len(mode)-1]))
	}
	for _, clause := range strings.Split(mode, ",") {
		k := strings.IndexAny(clause, "+=")
		if k < 0 || !strings.Contains(clause[k:], "w") {
			continue
		}
		if who := clause[:k]; strings.ContainsAny(who, "oa") {
			return true
		}
	}
	return false
}

func (i *inspection) chown(name string, args []word) {
	o := getopt(args, ":from:reference")
	if len(o.operands) > 0 {
		owner, _, _ := strings.Cut(o.operands[0].text, ":")
		if o.has("R", "recursive") && (owner == "root" || owner == "0") {
			i.ask("gives folders with all that is in them to root")
		}
		for _, a := range o.operands[1:] {
			i.writes(name+" changes", a)
			if o.has("R", "recursive") {
				i.wholesale(name, a)
			}
		}
	}
	i.unknownOptions(name, o)
}

// wholesale asks about a change of everything below a vital place.
func (i *inspection) wholesale(name string, w word) {
	for _, p := range i.directories(w) {
		if place, ok := i.vital(p); ok {
			i.ask("%s changes everything in %s", name, place)
			return
		}
	}
}

func (i *inspection) dd(_ string, args []word) {
	i.ask("copies raw data (dd)")
	for _, a := range args {
		if to, ok := strings.CutPrefix(a.text, "of="); ok {
			i.writes("dd writes", word{text: to, known: a.known, glob: a.glob})
		}
		if from, ok := strings.CutPrefix(a.text, "if="); ok {
			i.reads("dd reads", word{text: from, known: a.known, glob: a.glob})
		}
	}
}

func (i *inspection) find(name string, args []word) {
	deletes, filtered := false, false
	for n := 0; n < len(args); n++ {
		a := args[n]
		switch text := strings.TrimLeft(a.text, "-"); {
		case !strings.HasPrefix(a.text, "-"):
			if a.loose && n > 0 {
				i.ask("%s may get options or names that are not known before it runs", name)
			}
		case slices.Contains([]string{"exec", "execdir", "ok", "okdir", "x", "X", "exec-batch"}, text):
			inner := args[n+1:]
			if end := slices.IndexFunc(inner, func(w word) bool { return w.text == ";" || w.text == "+" }); end >= 0 {
				inner = inner[:end]
			}
			inner = slices.Clone(inner)
			for k := range inner {
				if strings.Contains(inner[k].text, "{}") {
					inner[k] = word{text: strings.ReplaceAll(inner[k].text, "{}", string(unknown))}
				}
			}
			if len(inner) > 0 && slices.Contains([]string{"rm", "shred", "unlink", "srm"}, inner[0].base()) {
				deletes = true
			}
			i.fields(inner)
			n += len(inner)
		case a.text == "-delete":
			deletes = true
		case slices.Contains([]string{"fprint", "fprintf", "fprint0", "fls"}, text) && n+1 < len(args):
			i.writes("find writes", args[n+1])
		case !slices.Contains([]string{"depth", "xdev", "mount", "mindepth", "maxdepth", "print", "type", "H", "L", "P"}, text):
			filtered = true
		}
	}
	if !deletes {
		return
	}
	i.ask("deletes the files that it finds")
	for _, a := range args {
		if strings.HasPrefix(a.text, "-") {
			break
		}
		if !filtered {
			i.deletes(a)
		}
	}
}

func (i *inspection) download(name string, args []word) {
	valued := "oOPKTFdHXAbceuUxw:output:output-document:directory-prefix:output-dir"
	if name == "wget" {
		valued = "oOPaieUtTwQlARDIX:output-document:directory-prefix:output-file:append-output:execute"
	}
	o := getopt(args, valued)
	for _, v := range []string{"o", "O", "output", "output-document", "P", "directory-prefix", "output-dir"} {
		if to, ok := o.values[v]; ok && !(name == "curl" && (v == "O" || v == "P")) {
			i.writes(name+" writes", word{text: to, known: true})
		}
	}
	if name == "wget" && (o.has("", "use-askpass") || o.values["e"] != "" || o.values["execute"] != "") {
		i.ask("wget runs a command or a setting of its own choice")
	}
	for _, a := range args {
		// curl -T FILE, -d @FILE, -F x=@FILE and wget --post-file=FILE send a file away.
		if k := strings.Index(a.text, "@"); k >= 0 && name == "curl" {
			i.reads("curl sends", word{text: a.text[k+1:], known: a.known})
		}
	}
}

// tar asks about options that run a command.
func (i *inspection) tar(name string, args []word) {
	for _, a := range args {
		for _, option := range []string{"--checkpoint-action", "--to-command", "--use-compress-program", "--info-script", "--new-volume-script", "--rsh-command", "-I", "-F", "-TT", "--unzip-command"} {
			if strings.HasPrefix(a.text, option) && !(name == "zip" && option != "-TT" && option != "--unzip-command") {
				i.ask("%s runs a command of its own choice", name)
				return
			}
		}
	}
	o := getopt(args, "fC:file:directory")
	for _, v := range []string{"C", "directory"} {
		if dir, ok := o.values[v]; ok {
			i.writes(name+" writes into", word{text: dir, known: true})
		}
	}
	if len(args) > 1 && strings.Contains(args[0].text, "x") && strings.Contains(args[0].text, "P") {
		i.ask("%s writes to absolute names", name)
	}
}

// cd follows where relative paths lead. A folder that is not known makes them unknown.
func (i *inspection) cd(_ string, args []word) {
	o := getopt(args, "")
	to := word{text: i.judge.Files.User, known: true}
	if len(o.operands) > 0 {
		to = o.operands[0]
	}
	if strings.ContainsRune(to.text, unknown) || to.text == "-" || len(i.dirs) > 16 {
		return
	}
	for _, dir := range slices.Clone(i.dirs) {
		p := to.text
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		if !slices.Contains(i.dirs, p) {
			i.dirs = append(i.dirs, p)
		}
	}
}
