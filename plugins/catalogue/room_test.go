package catalogue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// fill puts files of so many bytes into a plugin's folder.
func (r *rig) fill(name string, sizes ...int) {
	r.t.Helper()
	dir := filepath.Join(r.DataDir(name), "below")
	for i, n := range sizes {
		err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, n), 0o600))
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestTheSizeOfAPluginsFolderIsWhatItTakesOnDisk(t *testing.T) {
	r := newRig(t)
	r.fill("weather", 1<<20, 2<<20)
	outside := filepath.Join(t.TempDir(), "large")
	sparse := filepath.Join(r.DataDir("weather"), "sparse")
	if err := errors.Join(os.WriteFile(outside, make([]byte, 8<<20), 0o600), os.Symlink(outside, filepath.Join(r.DataDir("weather"), "link")),
		os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 1<<33)); err != nil {
		t.Fatal(err)
	}
	if n := r.DataBytes("weather"); n < 3<<20 || n > 4<<20 {
		t.Errorf("%d bytes", n)
	}
	if n := r.DataBytes("nobody"); n != 0 {
		t.Errorf("of nobody: %d bytes", n)
	}
}

func TestTemporaryFilesAreTakenAwayAtOnce(t *testing.T) {
	r := newRig(t)
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	tmp := filepath.Join(r.DataDir("weather"), Temp)
	if err := os.MkdirAll(filepath.Dir(tmp), 0o700); err != nil {
		t.Fatal(err)
	}
	if path, err := r.TakeTemp("weather"); path != "" || err != nil {
		t.Errorf("none is there: %q, %v", path, err)
	}
	for name, makes := range map[string]func() error{
		"a folder": func() error {
			return errors.Join(os.MkdirAll(filepath.Join(tmp, "below"), 0o700), os.Symlink(outside, filepath.Join(tmp, "below", "link")))
		},
		"a link":    func() error { return os.Symlink(outside, tmp) },
		"no folder": func() error { return os.WriteFile(tmp, nil, 0o600) },
	} {
		if err := errors.Join(os.WriteFile(kept, nil, 0o600), makes()); err != nil {
			t.Fatal(err)
		}
		path, err := r.TakeTemp("weather")
		if _, there := os.Lstat(tmp); err != nil || path == "" || !os.IsNotExist(there) {
			t.Errorf("%s: %q, %v, %v", name, path, err, there)
		}
		err = r.SweepTemp()
		if _, there := os.Lstat(path); err != nil || !os.IsNotExist(there) {
			t.Errorf("%s is swept: %v, %v", name, err, there)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("%s: outside of it: %v", name, err)
		}
	}
}

func TestAFullDiskIsSaidWithThePluginThatHasMostOfIt(t *testing.T) {
	r := newRig(t)
	full := fmt.Errorf("write it: %w", syscall.ENOSPC)
	if hint := r.roomHint(full); hint != "; make room on the disk of the home" {
		t.Errorf("without plugins: %q", hint)
	}
	r.put(r.entry("weather", "one", "forecast"))
	r.put(r.entry("map", "two", "draw"))
	r.fill("weather", 1<<20)
	r.fill("map", 5<<20)
	if hint := r.roomHint(full); hint != "; of the plugins map has most in its folder, 5 MiB: `plugins remove map --data` works on a full disk and gives it back" {
		t.Errorf("%q", hint)
	}
	if hint := r.roomHint(os.ErrPermission); hint != "" {
		t.Errorf("of another error: %q", hint)
	}
}
