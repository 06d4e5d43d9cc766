package plugintest_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/plugintest"
)

// When the supervisor is killed the reader of a plugin's stderr is gone as well. The plugin's next log line must not be its end: it
// ends in order, with what it has started.
func TestAPluginWhoseLogHasNoReaderEndsInOrder(t *testing.T) {
	liveR, liveW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(plugintest.Build(t, "../examples/hello"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), ipc.LivenessFDEnv + "=3",
		ipc.Handshake.MagicCookieKey + "=" + ipc.Handshake.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=1"}
	cmd.Stderr, cmd.ExtraFiles = errW, []*os.File{liveR}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = errW.Close(), liveR.Close()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("no handshake: %q, %v", line, err)
	}
	_, _ = errR.Close(), liveW.Close() // the supervisor is killed
	ended := make(chan error, 1)
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		ended <- cmd.Wait()
	}()
	select {
	case err := <-ended:
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			t.Errorf("it ended with %v", exit)
		} else if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
		t.Error("it does not end")
	}
}
