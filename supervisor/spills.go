package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// spills keeps whole outputs of tools that do not keep them themselves, in the folder of those that do: the tools worker
// removes what is too old or too much there.
type spills struct {
	dir string
	now func() time.Time
}

// keep writes an output, which is at most one message of the protocol, and returns where it is.
func (s spills) keep(tool, content string) (string, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", fmt.Errorf("spill folder: %w", err)
	}
	f, err := os.CreateTemp(s.dir, fmt.Sprintf("%s-%s-*.txt", s.now().UTC().Format("20060102T150405"), filepath.Base(tool)))
	if err != nil {
		return "", fmt.Errorf("spill file: %w", err)
	}
	_, err = f.WriteString(content)
	if end := f.Close(); err == nil {
		err = end
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("spill file: %w", err)
	}
	return f.Name(), nil
}
