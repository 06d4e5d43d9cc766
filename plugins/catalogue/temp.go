package catalogue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// Temp is the folder in a plugin's own one for what it needs no longer than its process.
	Temp = "tmp"
	// gone begins the names of such folders that were taken away and are being removed.
	gone = ".gone-"
)

// TakeTemp takes a plugin's folder for temporary files away, at once however much is in it, and returns where it is now, empty
// if there is none. None of the plugin's processes may run. There only we can change it: removing it follows no link.
func (c *Catalogue) TakeTemp(name string) (path string, err error) {
	to := filepath.Join(c.dir, data, fmt.Sprintf("%s%s-%d", gone, name, c.now().UnixNano()))
	err = os.Rename(filepath.Join(c.DataDir(name), Temp), to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("temporary files of %s: %w", name, err)
	}
	return to, nil
}

// SweepTemp removes what was taken away and not removed.
func (c *Catalogue) SweepTemp() error {
	left, err := filepath.Glob(filepath.Join(c.dir, data, gone+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}
