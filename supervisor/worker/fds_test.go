package worker

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

func TestAProgramRunFromADescriptorIsCalledByItsWorkersName(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("there is no sleep")
	}
	for as, want := range map[string]string{"4": "searcher", "node20": "node20"} {
		t.Run(as, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), as) // the kernel takes the name from the path, as it does from that of a descriptor
			if err := os.Symlink(sleep, path); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(path, "60")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			r, err := Fds(sample.System, "searcher", cmd.Process.Pid, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Processes[0].Name; got != want {
				t.Errorf("called %q, want %q", got, want)
			}
		})
	}
}
