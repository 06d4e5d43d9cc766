package process

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestACommandDoesNotInheritThePatienceOfTheWorker(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Skip("the kernel knows no timer slack")
	}
	const patient = 7_000_000
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, patient, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0) }()
	if _, err := os.Stat("/proc/self/timerslack_ns"); err != nil {
		t.Skip("the kernel does not show timer slack")
	}
	cmd := exec.Command("cat", "/proc/self/timerslack_ns")
	var out strings.Builder
	cmd.Stdout = &out
	if err := startPunctual(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != "50000" {
		t.Errorf("the command has a slack of %s ns, want the usual 50000", got)
	}
	if now, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); now != patient {
		t.Errorf("the worker's thread has %d ns afterwards, had %d", now, patient)
	}
}
