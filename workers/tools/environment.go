package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// findShell returns bash, or else the system's sh.
func findShell(path string) (name string, posix bool) {
	for _, dir := range filepath.SplitList(path) {
		if p := filepath.Join(dir, "bash"); executable(p) {
			return p, false
		}
	}
	return "/bin/sh", true
}

func executable(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// secretNames mark a variable as a secret, wherever they stand in its name.
var secretNames = []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "COOKIE", "PRIVATE"}

// ownNames are variables of the supervisor, of go-plugin and of systemd that are no business of a command, and such
// by which bash runs or defines something before the command.
var ownNames = []string{"HERMES_", "PLUGIN_", "NOTIFY_", "WATCHDOG_", "LISTEN_", "INVOCATION_", "JOURNAL_", "BASH_ENV", "BASH_FUNC_", "BASHOPTS", "SHELLOPTS", "PROMPT_COMMAND", "LD_", "PWD", "OLDPWD"}

// workerMark is how the supervisor knows whose a process is that outlived its worker. It must reach every descendant.
const workerMark = "HERMES_WORKER"

// defaultPath is for a worker that was started without one.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// commandEnv makes the environment of commands: what the worker has, without secrets, and no programs that wait for
// a person. Names in pass are kept whatever they are.
func commandEnv(environ, pass []string, home string) []string {
	env := []string{"HERMES_HOME=" + home, "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "DEBIAN_FRONTEND=noninteractive", "SHLVL=0"}
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		upper := strings.ToUpper(name)
		switch {
		case name == workerMark || slices.Contains(pass, name):
		case slices.ContainsFunc(secretNames, func(s string) bool { return strings.Contains(upper, s) }):
			continue
		case name == "ENV" || slices.ContainsFunc(ownNames, func(s string) bool { return strings.HasPrefix(upper, s) }):
			continue
		case slices.ContainsFunc(env, func(set string) bool { return strings.HasPrefix(set, name+"=") }):
			continue
		}
		env = append(env, v)
	}
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		env = append(env, "PATH="+defaultPath)
	}
	return env
}
