package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// retiredHolders names processes that have a deleted -wal or -shm of the database at path open. Such a process goes on
// writing into a WAL that nobody else sees; opening the database beside it would make a second one, and what the two
// write later damages the file. /proc says so by a link that ends in " (deleted)"; some file systems say it of files
// that are still there, so the inodes are compared.
func retiredHolders(path string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(real, filepath.Base(path))
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd") // processes of other users cannot be read and are passed over
	var holders []string
	for _, dir := range links {
		if pid, ok := holdsRetired(dir, path); ok {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			holders = append(holders, fmt.Sprintf("pid %d (%s)", pid, strings.TrimSpace(string(name))))
		}
	}
	return holders
}

func holdsRetired(dir, path string) (pid int, ok bool) {
	pid, _ = strconv.Atoi(strings.Split(dir, "/")[2])
	entries, err := os.ReadDir(dir)
	if err != nil {
		return pid, false
	}
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		file, deleted := strings.CutSuffix(target, " (deleted)")
		if !deleted || file != path+"-wal" && file != path+"-shm" {
			continue
		}
		held, err := at(link)
		if err != nil {
			continue
		}
		if there, err := at(file); err != nil || there != held {
			return pid, true
		}
	}
	return pid, false
}
