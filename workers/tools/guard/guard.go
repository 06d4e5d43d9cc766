// Package guard knows which files the tools must leave alone, and which only a person may open up: the agent's
// databases, credentials, files that the system or the user's shell run by themselves, and devices.
//
// Rules: a path is judged as it is written and as it resolves, symbolic links in any component included, and a
// database also by its inode, so that no other name leads to it. The databases are refused to everybody, always:
// the supervisor alone opens them. This is protection against mistakes, not a sandbox; whoever may run any command
// can get around it.
package guard

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A Verdict orders what may happen, from the mildest.
type Verdict int

const (
	// Allow: nothing speaks against it.
	Allow Verdict = iota
	// Ask: a person must say yes.
	Ask
	// Refuse: never, whatever a person says.
	Refuse
)

func (v Verdict) String() string {
	return [...]string{"allow", "ask", "refuse"}[v]
}

// A Ruling is a verdict with the reason for it, empty if allowed.
type Ruling struct {
	Verdict Verdict
	Reason  string
}

// Worse returns the sterner of two rulings; of equals the first.
func (r Ruling) Worse(other Ruling) Ruling {
	if other.Verdict > r.Verdict {
		return other
	}
	return r
}

// Files judges paths. Home is the agent's home, User the home directory of the user that runs it.
type Files struct {
	Home string
	User string
}

// maxLinks bounds how far symbolic links are followed by hand.
const maxLinks = 40

// Reading rules on reading the file at an absolute path.
func (f *Files) Reading(name string) Ruling {
	ruling := Ruling{}
	for _, p := range f.names(name) {
		ruling = ruling.Worse(f.reading(p))
	}
	return ruling.Worse(f.byInode(name))
}

// Writing rules on creating, changing or replacing the file at an absolute path.
func (f *Files) Writing(name string) Ruling {
	ruling := Ruling{}
	for _, p := range f.names(name) {
		ruling = ruling.Worse(f.writing(p))
	}
	return ruling.Worse(f.byInode(name))
}

// names lists what a path is called: as written, and as it resolves. Rules are written for resolved names, so the
// homes are looked at in both forms too.
func (f *Files) names(name string) []string {
	clean := filepath.Clean(name)
	all := []string{clean}
	if harmlessDevice(clean) { // its target is another process's when a command names it
		return all
	}
	if r := Resolve(clean); r != clean {
		all = append(all, r)
	}
	for _, root := range []string{f.Home, f.User} {
		resolved := Resolve(root)
		if root == "" || resolved == filepath.Clean(root) {
			continue
		}
		for _, p := range all {
			if rest, ok := below(resolved, p); ok {
				all = append(all, filepath.Join(root, rest))
				break
			}
		}
	}
	return all
}

// Resolve follows symbolic links in every component of an absolute path, as far as it exists.
func Resolve(name string) string {
	name = filepath.Clean(name)
	for range maxLinks {
		if r, err := filepath.EvalSymlinks(name); err == nil {
			return r
		}
		// The last component that exists may be a link to what does not.
		if target, err := os.Readlink(name); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(name), target)
			}
			name = filepath.Clean(target)
			continue
		}
		dir := filepath.Dir(name)
		if dir == name {
			return name
		}
		return filepath.Join(Resolve(dir), filepath.Base(name))
	}
	return name
}

// below returns the rest of p under root, "." for root itself.
func below(root, p string) (rest string, ok bool) {
	if root == "" {
		return "", false
	}
	rest, err := filepath.Rel(root, p)
	if err != nil || rest == ".." || strings.HasPrefix(rest, "../") {
		return "", false
	}
	return rest, true
}

func (f *Files) reading(p string) Ruling {
	switch {
	case f.Database(p):
		return Ruling{Refuse, "is a database of the supervisor, which alone may open it"}
	case RawDisk(p), p == "/dev/mem", p == "/dev/kmem", p == "/proc/kcore":
		return Ruling{Ask, "reads a raw device"}
	case f.credential(p):
		return Ruling{Ask, "reads a file that holds credentials"}
	}
	if parts := strings.Split(p, "/"); len(parts) > 3 && parts[1] == "proc" && slices.Contains([]string{"environ", "mem", "maps"}, parts[len(parts)-1]) {
		return Ruling{Ask, "reads the memory or environment of a process"}
	}
	return Ruling{}
}

func (f *Files) writing(p string) Ruling {
	switch {
	case f.Database(p):
		return Ruling{Refuse, "is a database of the supervisor, which alone may open it"}
	case RawDisk(p), p == "/dev/mem", p == "/dev/kmem", p == "/dev/port":
		return Ruling{Refuse, "writes to a raw device"}
	case harmlessDevice(p):
		return Ruling{}
	case f.credential(p) || path.Base(p) == "authorized_keys":
		return Ruling{Refuse, "writes a file that holds credentials or lets others in"}
	case f.system(p):
		return Ruling{Ask, "writes to a place of the system"}
	case f.startup(p):
		return Ruling{Ask, "writes a file that is run or read by itself"}
	}
	return Ruling{}
}

// databaseSuffixes are those of SQLite's files, the write-ahead log and its index among them.
var databaseSuffixes = []string{".db", ".db-wal", ".db-shm", ".db-journal"}

// Database says whether an absolute path names one of the agent's databases. Backups and snapshots carry other
// suffixes.
func (f *Files) Database(p string) bool {
	if _, ok := below(f.Home, p); !ok {
		return false
	}
	return slices.ContainsFunc(databaseSuffixes, func(s string) bool { return strings.HasSuffix(p, s) })
}

// byInode finds a database under any name, a hard link for example. It looks at names only, as an open descriptor
// on a database is what must not be.
func (f *Files) byInode(name string) Ruling {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || f.Home == "" {
		return Ruling{}
	}
	for _, pattern := range []string{"*.db*", "kanban/boards/*/*.db*"} {
		found, _ := filepath.Glob(filepath.Join(f.Home, pattern))
		for _, p := range found {
			if other, err := os.Stat(p); err == nil && f.Database(p) && os.SameFile(info, other) {
				return Ruling{Refuse, "is another name of a database of the supervisor, which alone may open it"}
			}
		}
	}
	return Ruling{}
}

// RawDisk says whether p is the device file of a disk or a part of one.
func RawDisk(p string) bool {
	name, ok := strings.CutPrefix(p, "/dev/")
	if !ok {
		return false
	}
	for _, dir := range []string{"disk/", "mapper/", "block/", "bsg/"} {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	for _, prefix := range []string{"sd", "hd", "vd", "xvd", "nvme", "mmcblk", "loop", "dm-", "md", "nbd", "rbd", "sr", "zd", "ram", "disk", "rdisk", "mtd"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && !strings.Contains(rest, "/") {
			return true
		}
	}
	return false
}

func harmlessDevice(p string) bool {
	switch p {
	case "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty":
		return true
	}
	return strings.HasPrefix(p, "/dev/fd/") || strings.HasPrefix(p, "/dev/shm/") || strings.HasPrefix(p, "/proc/self/fd/")
}

// SystemDirs are the directories that belong to the operating system.
var SystemDirs = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr"}

func (f *Files) system(p string) bool {
	for _, dir := range append([]string{"/var/spool/cron", "/var/lib/dpkg", "/var/lib/systemd"}, SystemDirs...) {
		if _, ok := below(dir, p); ok {
			return true
		}
	}
	return false
}

// Explain makes a sentence of a ruling about a path.
func (r Ruling) Explain(name string) string {
	return fmt.Sprintf("%s %s", name, r.Reason)
}
