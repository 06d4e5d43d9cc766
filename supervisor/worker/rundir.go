package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// socketPathLimit is what the kernel allows for the path of a socket: 108 bytes with the zero at the end.
	socketPathLimit = 107
	// socketDirPrefix is what go-plugin calls the folder that it makes for each process, before a number of up to ten digits.
	socketDirPrefix = "plugin-dir"
	// socketNames is what go-plugin appends to the run directory at most.
	socketNames = len("/" + socketDirPrefix + "4294967295" + "/plugin" + "4294967295")
)

// CheckRunDir says whether sockets can be made below dir. The kernel's own word for a path that is too long is "invalid
// argument", and it is said in the worker.
func CheckRunDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("run directory %q is not absolute", dir)
	}
	if n := len(dir) + socketNames; n > socketPathLimit {
		return fmt.Errorf("run directory %s is too long: sockets in it have paths of up to %d bytes, the kernel allows %d; choose one of at most %d bytes with --run-dir",
			dir, n, socketPathLimit, socketPathLimit-socketNames)
	}
	return nil
}

// CleanRunDir removes the socket folders that an earlier supervisor has left in dir. It is called at start, when the home
// is locked and no worker runs, and returns how many there were.
func CleanRunDir(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("clean run directory: %w", err)
	}
	n := 0
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), socketDirPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return n, fmt.Errorf("clean run directory: %w", err)
		}
		n++
	}
	return n, nil
}
