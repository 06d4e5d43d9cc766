package enter

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// become changes the user, or gives up what root can do besides owning files. Only this thread is changed, which is the
// one that executes the plugin and the only one that is left then.
func become(who *account) error {
	if who != nil {
		if err := syscall.Setgroups([]int{who.gid}); err != nil {
			return fmt.Errorf("leave the supervisor's groups: %w", err)
		}
		if err := syscall.Setresgid(who.gid, who.gid, who.gid); err != nil {
			return fmt.Errorf("become group %d: %w", who.gid, err)
		}
		if err := syscall.Setresuid(who.uid, who.uid, who.uid); err != nil {
			return fmt.Errorf("become user %d: %w", who.uid, err)
		}
		return nil // the capabilities went with root's number
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return dropCapabilities()
}

// noRoot makes exec treat uid 0 as any other, and locks that.
const noRoot = 1<<0 | 1<<1 // SECBIT_NOROOT, SECBIT_NOROOT_LOCKED

func dropCapabilities() error {
	for capability := 0; capability <= unix.CAP_LAST_CAP; capability++ {
		// EINVAL: newer than this kernel. EPERM: this root has not all capabilities itself (a container).
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("drop root's privileges: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
