package backup_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// A disk that gets full while a backup is made is the reason of its failure, said once, and no part of a backup stays on it.
func TestAFullDiskIsSaidOnce(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("a small file system cannot be mounted here (root is needed): ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	for name, size := range map[string]int{"held in memory": 400 << 10, "held on disk": 3 << 20} {
		files := map[string]string{}
		for _, file := range []string{"a", "b", "c", "d"} {
			noise := make([]byte, size) // which cannot be packed
			_, _ = rand.Read(noise)
			files[file] = string(noise)
		}
		dir := home(t, files)
		_, err := backup.Zip(t.Context(), dir, filepath.Join(disk, "b.zip"), plain(dir))
		if !errors.Is(err, unix.ENOSPC) || strings.Count(err.Error(), unix.ENOSPC.Error()) != 1 {
			t.Errorf("%s: %v", name, err)
		}
		if left := names(t, disk); len(left) != 0 {
			t.Errorf("%s: %q stays", name, left)
		}
	}
}

// Two backups that begin within one second, of two homes even, have two names, and the first made is the older one.
func TestBackupsOfOneSecondHaveTheirOwnNames(t *testing.T) {
	dir, out := home(t, usual), t.TempDir()
	var made []string
	for range 3 {
		z, err := backup.ZipInto(t.Context(), dir, out, noon, plain(dir))
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, z.Path)
	}
	want := []string{"hermes-backup-2026-12-01-120000.zip", "hermes-backup-2026-12-01-120001.zip", "hermes-backup-2026-12-01-120002.zip"}
	for i, path := range made {
		if path != filepath.Join(out, want[i]) {
			t.Errorf("backup %d is %s, want %s", i, path, want[i])
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	removed, err := backup.KeepZips(out, 2)
	if err != nil || !slices.Equal(removed, made[:1]) {
		t.Errorf("removed %q, %v", removed, err)
	}
}
