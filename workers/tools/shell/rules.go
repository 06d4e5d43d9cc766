package shell

import (
	"slices"
	"strings"
)

// A rule inspects one command that is known to be able to do harm.
type rule func(i *inspection, name string, args []word)

// rules by the name of the command. Set in init, as rules inspect commands in turn.
var rules = map[string]rule{}

func init() {
	for _, group := range []struct {
		rule  rule
		names []string
	}{
		{(*inspection).rm, []string{"rm"}},
		{(*inspection).erase, []string{"shred", "wipefs", "srm"}},
		{(*inspection).chmod, []string{"chmod"}},
		{(*inspection).chown, []string{"chown", "chgrp"}},
		{(*inspection).dd, []string{"dd"}},
		{(*inspection).find, []string{"find", "fd", "fdfind"}},
		{(*inspection).copier, []string{"cp", "mv", "install", "ln", "rsync", "scp"}},
		{(*inspection).writer, []string{"tee", "truncate", "touch", "chattr", "setfacl", "patch", "unlink"}},
		{(*inspection).editor, []string{"ed", "ex", "vi", "vim", "nvim", "emacs"}},
		{(*inspection).download, []string{"curl", "wget", "aria2c"}},
		{(*inspection).tar, []string{"tar", "bsdtar", "zip"}},
		{(*inspection).cd, []string{"cd", "pushd"}},
		{(*inspection).ssh, []string{"ssh"}}, {(*inspection).sed, []string{"sed"}},
		{(*inspection).awk, []string{"awk", "gawk", "mawk", "nawk"}},
		{(*inspection).git, []string{"git"}},

		{(*inspection).powerOff, []string{"shutdown", "reboot", "halt", "poweroff"}},
		{(*inspection).runLevel, []string{"init", "telinit"}},
		{(*inspection).systemctl, []string{"systemctl", "loginctl"}},
		{(*inspection).service, []string{"service", "rc-service", "sv", "supervisorctl", "launchctl", "initctl"}},
		{(*inspection).kill, []string{"kill"}},
		{(*inspection).killByName, []string{"pkill", "killall", "skill"}},
		{(*inspection).killAll, []string{"killall5"}},
		{(*inspection).container, []string{"docker", "podman", "nerdctl", "docker-compose", "podman-compose", "kubectl", "lxc", "virsh"}},
		{(*inspection).hermes, []string{"hermes", "hermes-gateway", "hermes-supervisor"}},
		{(*inspection).otherUser, []string{"su", "runuser"}},
		{(*inspection).crontab, []string{"crontab"}},
		{(*inspection).firewall, []string{"iptables", "ip6tables", "nft", "ufw", "firewall-cmd"}},
		{(*inspection).textOfArguments, []string{"watch"}},
		{(*inspection).flock, []string{"flock"}},

		{(*inspection).shell, shells},
		{(*inspection).interpreter, interpreters},
		{(*inspection).sqlClient, sqlClients},
		{(*inspection).eval, []string{"eval"}},
		{(*inspection).source, []string{"source", "."}},
		{(*inspection).trap, []string{"trap"}},
		{(*inspection).alias, []string{"alias"}},
		{(*inspection).enable, []string{"enable"}},
		{(*inspection).callback, []string{"mapfile", "readarray", "complete", "bind"}},

		{always("changes disks, file systems or volumes"), diskTools},
		{always("changes an account"), accountTools},
		{always("schedules a command"), []string{"at", "batch"}},
		{always("runs a command in a sandbox or a terminal of its own"), []string{"bwrap", "script"}},
		{always("runs commands that outlive this one"), []string{"tmux", "screen"}},
		{always("runs a command again and again"), []string{"entr"}},
		{always("runs a Windows command"), []string{"powershell", "pwsh", "powershell.exe", "cmd.exe"}},
		{always("deletes files"), []string{"del", "rd", "Remove-Item"}},
	} {
		for _, name := range group.names {
			rules[name] = group.rule
		}
	}
}

var (
	shells       = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "rbash", "elvish", "xonsh", "nu"}
	interpreters = []string{
		"python", "pypy", "ipython", "perl", "ruby", "irb", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "tclsh", "wish", "Rscript", "R",
		"julia", "groovy", "osascript", "expect", "scala", "jshell", "guile", "racket", "sbcl", "ghc", "elixir", "erl", "raku",
	}
	sqlClients = []string{"sqlite3", "sqlite", "psql", "mysql", "mariadb", "sqlcmd", "duckdb", "clickhouse-client", "cqlsh", "sqlplus", "usql", "mycli", "pgcli"}
	diskTools  = []string{
		"fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted", "mkswap", "swapoff", "blkdiscard", "cryptsetup", "lvremove", "vgremove", "pvremove", "lvreduce",
		"zpool", "zfs", "btrfs", "mdadm", "hdparm", "nvme", "tune2fs", "resize2fs", "debugfs", "umount", "losetup",
	}
	accountTools = []string{"useradd", "userdel", "usermod", "groupadd", "groupdel", "groupmod", "adduser", "deluser", "visudo", "vipw", "vigr", "chsh", "passwd", "chpasswd"}
)

// always makes a rule that asks about every use.
func always(does string) rule {
	return func(i *inspection, _ string, _ []word) { i.ask("%s", does) }
}

// unknownOptions asks when options may come out of something that is not known. It says whether it did.
func (i *inspection) unknownOptions(name string, o options) bool {
	if o.loose {
		i.ask("%s may get options or names that are not known before it runs", name)
	}
	return o.loose
}

func (i *inspection) powerOff(name string, args []word) {
	o := getopt(args, "t")
	if name == "shutdown" && o.has("c", "") || o.has("", "help") && len(o.long) == 1 {
		return
	}
	i.refuse("shuts the machine down or restarts it (%s)", name)
}

func (i *inspection) runLevel(name string, args []word) {
	o := getopt(args, "t")
	for _, a := range o.operands {
		if a.text == "0" || a.text == "6" {
			i.refuse("shuts the machine down or restarts it (%s %s)", name, a.text)
			return
		}
	}
	if len(args) > 0 {
		i.ask("changes the state of the whole machine (%s)", name)
	}
}

// powerVerbs end the whole machine, stopVerbs a service.
var (
	powerVerbs = []string{"poweroff", "reboot", "halt", "kexec", "soft-reboot"}
	stopVerbs  = []string{"stop", "restart", "try-restart", "reload-or-restart", "force-reload", "condrestart", "kill", "disable", "mask", "isolate", "rescue", "emergency", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "set-default", "daemon-reexec", "terminate-session", "terminate-user", "kill-session", "kill-user", "exit", "switch-root", "revert", "edit", "link", "set-property", "enable"}
)

func (i *inspection) systemctl(name string, args []word) {
	o := getopt(args, "HMtpsPno:host:machine:type:property:state:signal:root:lines:output:what:kill-whom:job-mode")
	if len(o.operands) > 0 {
		switch verb := o.operands[0].text; {
		case slices.Contains(powerVerbs, verb):
			i.refuse("shuts the machine down or restarts it (%s %s)", name, verb)
			return
		case slices.Contains(stopVerbs, verb):
			i.ask("changes a service (%s %s)", name, verb)
		case verb == "start" && slices.ContainsFunc(o.operands[1:], func(w word) bool {
			return slices.Contains([]string{"poweroff.target", "reboot.target", "halt.target", "kexec.target", "shutdown.target"}, w.text)
		}):
			i.refuse("shuts the machine down or restarts it (%s %s)", name, verb)
			return
		}
	}
	i.unknownOptions(name, o)
}

func (i *inspection) service(name string, args []word) {
	for _, a := range args {
		if slices.Contains(stopVerbs, a.text) || slices.Contains([]string{"unload", "remove", "bootout", "shutdown", "down", "reload", "update"}, a.text) {
			i.ask("changes a service (%s %s)", name, a.text)
			return
		}
		if a.loose {
			i.ask("%s may get options or names that are not known before it runs", name)
			return
		}
	}
}

func (i *inspection) kill(_ string, args []word) {
	signalled := false
	for n, a := range args {
		switch {
		case a.loose:
			i.ask("kill may get options or processes that are not known before it runs")
			return
		case a.text == "-s" || a.text == "-n" || a.text == "--signal":
			signalled = true
		case a.text == "-1" && (signalled || n == len(args)-1 || args[max(0, n-1)].text == "--"):
			i.refuse("kills every process")
			return
		case a.text == "1":
			i.ask("signals the first process of the machine")
		case strings.HasPrefix(a.text, "-"):
			signalled = true
		}
	}
}

func (i *inspection) killAll(string, []word) { i.refuse("kills every process") }

func (i *inspection) killByName(name string, args []word) {
	o := getopt(args, "sugPGtUyo:signal:user:older-than:younger-than")
	if o.has("r", "regexp") && name == "killall" || o.has("uUgGPt", "user") {
		i.ask("signals many processes at once")
	}
	for _, v := range []string{"s", "signal"} {
		if s := strings.ToUpper(o.values[v]); s == "9" || strings.HasSuffix(s, "KILL") {
			i.ask("kills processes by their name without letting them end")
		}
	}
	for _, a := range args {
		if s := strings.ToUpper(a.text); s == "-9" || s == "-KILL" || s == "-SIGKILL" {
			i.ask("kills processes by their name without letting them end")
		}
	}
	for _, a := range o.operands {
		if strings.Contains(a.text, "hermes") || a.text == "." || a.text == ".*" || a.text == "" {
			i.ask("signals the agent's own processes, or all (%s %s)", name, a.text)
		}
	}
	i.unknownOptions(name, o)
}

// container asks about what ends or removes containers, and about containers that can reach the whole machine.
func (i *inspection) container(name string, args []word) {
	verbs := []string{"stop", "restart", "kill", "rm", "rmi", "prune", "down", "pause", "unpause", "delete", "drain", "cordon", "destroy", "undefine", "shutdown", "reset", "update", "swarm"}
	for _, a := range args {
		switch {
		case a.loose:
			i.ask("%s may get options or names that are not known before it runs", name)
			return
		case slices.Contains(verbs, a.text):
			i.ask("ends or removes containers (%s %s)", name, a.text)
			return
		case a.text == "exec" && name == "docker" || a.text == "run":
			i.containerAccess(args)
			return
		}
	}
}

func (i *inspection) containerAccess(args []word) {
	for n, a := range args {
		text := a.text
		if (text == "-v" || text == "--volume" || text == "--mount") && n+1 < len(args) {
			text += "=" + args[n+1].text
		}
		if strings.HasPrefix(text, "--privileged") || strings.Contains(text, "docker.sock") || strings.HasPrefix(text, "-v=/:") || strings.HasPrefix(text, "-v/:") ||
			strings.HasPrefix(text, "--volume=/:") || strings.HasPrefix(text, "--pid=host") || strings.HasPrefix(text, "--cap-add") || strings.Contains(text, "source=/,") {
			i.ask("starts a container that can reach the whole machine")
			return
		}
	}
}

// hermes asks about what ends or changes the agent itself.
func (i *inspection) hermes(name string, args []word) {
	text := joined(args)
	verbs := []string{"stop", "restart", "run", "start", "update", "uninstall", "install", "shutdown", "drain", "reload", "restore", "add", "remove", "enable", "disable", "init", "set", "delete", "prune", "fix"}
	for _, a := range args {
		if slices.Contains(verbs, strings.TrimLeft(a.text, "-")) || a.loose {
			i.ask("ends or changes the agent itself (%s %s)", name, text)
			return
		}
	}
}

// daemon looks at what is started to go on without the terminal.
func (i *inspection) daemon(inner []word) {
	for _, w := range inner {
		if strings.HasPrefix(w.base(), "hermes") {
			i.ask("starts the agent outside of its service manager")
			return
		}
	}
}

func (i *inspection) otherUser(name string, args []word) {
	i.ask("runs a command as another user (%s)", name)
	const valued = "csgGwu:command:shell:session-command:group:user"
	o := getopt(args, valued)
	for _, v := range []string{"c", "command", "session-command"} {
		if text, ok := o.values[v]; ok {
			i.text(text, i.depth+1)
		}
	}
	if name == "runuser" {
		i.fields(leading(args, valued).operands)
	}
}

func (i *inspection) crontab(_ string, args []word) {
	if len(args) == 1 && args[0].text == "-l" {
		return
	}
	i.ask("changes what is run by the clock")
}

func (i *inspection) firewall(name string, args []word) {
	for _, a := range args {
		if slices.Contains([]string{"-L", "-S", "-nL", "--list", "list", "status", "--list-all", "--state"}, a.text) {
			return
		}
	}
	i.ask("changes the firewall (%s)", name)
}

func (i *inspection) textOfArguments(name string, args []word) {
	o := leading(args, "n:interval")
	if i.unknownOptions(name, o) {
		return
	}
	// watch hands all of its operands to a shell.
	if len(o.operands) > 0 {
		i.text(joined(o.operands), i.depth+1)
	}
}

func (i *inspection) flock(name string, args []word) {
	o := leading(args, "wE:timeout:wait:conflict-exit-code")
	if i.unknownOptions(name, o) || len(o.operands) < 2 {
		return
	}
	if c := o.operands[1].text; (c == "-c" || c == "--command") && len(o.operands) > 2 {
		i.text(o.operands[2].text, i.depth+1)
		return
	}
	i.fields(o.operands[1:])
}
