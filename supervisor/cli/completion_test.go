package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestShellsCompleteNamesOfWorkers runs the shells themselves, as a person at a prompt has them.
func TestShellsCompleteNamesOfWorkers(t *testing.T) {
	r := newRig(t)
	r.control.show(someStatus())
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// testscript.Main makes this binary the program where it is called by its name.
	if err := os.Symlink(self, filepath.Join(bin, "hermes-supervisor")); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []struct{ name, needs, script string }{
		{"bash", "/usr/share/bash-completion/bash_completion", `
			. /usr/share/bash-completion/bash_completion
			. <(hermes-supervisor completion bash)
			line="hermes-supervisor ctl restart ag"
			COMP_WORDS=($line) COMP_CWORD=3 COMP_LINE=$line COMP_POINT=${#line}
			__start_hermes-supervisor
			printf '%s\n' "${COMPREPLY[@]}"`},
		{"fish", "", `
			hermes-supervisor completion fish | source
			complete -C "hermes-supervisor ctl restart ag"`},
		{"zsh", "", `
			autoload -U compinit; compinit -u -d "$HOME/.zcompdump"
			compdef() { :; }
			eval "$(hermes-supervisor completion zsh)"
			_describe() { shift $(( $# - 1 )); print -l -- ${(P)1} }
			words=(hermes-supervisor ctl restart ag) CURRENT=4
			_hermes-supervisor`},
	} {
		t.Run(shell.name, func(t *testing.T) {
			path, err := exec.LookPath(shell.name)
			if err != nil {
				t.Skip(shell.name + " is not installed")
			}
			if _, err := os.Stat(shell.needs); shell.needs != "" && err != nil {
				t.Skip(shell.needs + " is not installed")
			}
			cmd := exec.Command(path, "-c", shell.script)
			cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "HERMES_HOME=" + r.home, "XDG_RUNTIME_DIR=" + filepath.Dir(r.base), "TERM=dumb"}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "agent-1") || strings.Contains(string(out), "tools") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
