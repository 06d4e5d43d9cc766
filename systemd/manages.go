package systemd

import (
	"os"
	"strconv"
)

// Manages says whether a service manager started this very process, and so starts it again when it fails. INVOCATION_ID
// does not tell: every shell below a service has it.
func Manages() bool {
	return os.Getenv("NOTIFY_SOCKET") != "" || os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}
