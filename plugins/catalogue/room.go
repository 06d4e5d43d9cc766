package catalogue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// LargeData is what a person should know of a plugin's folder, which has no limit and is on the disk of the home: as much as a
// plugin may write into one file.
const LargeData = 1 << 30

// countedFiles bounds the look into one folder, which belongs to the plugin: the size of one with more is at least what is told.
const countedFiles = 100_000

// DataBytes is what a plugin's folder takes on disk, as far as it can be seen.
func (c *Catalogue) DataBytes(name string) (bytes int64) {
	left := countedFiles
	_ = filepath.WalkDir(c.DataDir(name), func(_ string, d fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil {
			return nil // another user's folder, or gone meanwhile
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += st.Blocks * 512
			}
		}
		return nil
	})
	return bytes
}

// roomHint says who has filled the disk on which something could not be written. The entries must not change meanwhile.
func (c *Catalogue) roomHint(err error) string {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return ""
	}
	largest, most := "", int64(0)
	for name := range c.entries {
		if n := c.DataBytes(name); n > most {
			largest, most = name, n
		}
	}
	if largest == "" {
		return "; make room on the disk of the home"
	}
	return fmt.Sprintf("; of the plugins %s has most in its folder, %d MiB: `plugins remove %s --data` works on a full disk and gives it back", largest, most>>20, largest)
}
