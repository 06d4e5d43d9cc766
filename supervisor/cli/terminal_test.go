package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

func TestTopNeedsATerminalThatCanBeDrawnOn(t *testing.T) {
	screen, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close(); _ = screen.Close() })
	for _, term := range []string{"dumb", ""} {
		t.Setenv("TERM", term)
		var errOut bytes.Buffer
		code := execute(t.Context(), []string{"ctl", "top", "--home", t.TempDir()}, streams{in: tty, out: tty, err: &errOut})
		if said := errOut.String(); code != ipc.ExitUsage || !strings.Contains(said, `TERM="`+term+`"`) ||
			!strings.Contains(said, "hermes-supervisor ctl status") || !strings.Contains(said, "hermes-supervisor ctl watch") {
			t.Errorf("TERM=%q: exit %d, %q", term, code, said)
		}
	}
	t.Setenv("TERM", "xterm")
	var errOut bytes.Buffer
	execute(t.Context(), []string{"ctl", "top", "--home", t.TempDir()}, streams{in: tty, out: tty, err: &errOut})
	if strings.Contains(errOut.String(), "TERM") {
		t.Errorf("a terminal was refused: %s", errOut.String())
	}
}
