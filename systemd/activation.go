package systemd

import (
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// Passed returns the socket at path among those that the service manager passed (LISTEN_FDS), nil if there is none. The
// manager goes on to own the file: closing the listener leaves it. Other sockets are closed, as nobody would serve them.
func Passed(path string) (net.Listener, error) {
	list, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("sockets of the service manager: %w", err)
	}
	var found net.Listener
	for _, l := range list {
		unix, ok := l.(*net.UnixListener)
		if !ok || found != nil || unix.Addr().String() != path {
			if l != nil {
				_ = l.Close()
			}
			continue
		}
		unix.SetUnlinkOnClose(false)
		found = unix
	}
	if found == nil && len(list) > 0 {
		return nil, fmt.Errorf("the service manager passed %d sockets and none is %s: write the units again with systemd install", len(list), path)
	}
	return found, nil
}
