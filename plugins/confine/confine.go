// Package confine says how a tool plugin is shut in before its first instruction: what it may read, write and connect
// to, and how much it may use. Package enter, in the small program hermes-confine, does it between fork and exec.
//
// Rules: nothing of this happens in the supervisor, as most of it cannot be undone. What a kernel cannot enforce is
// left out and said (Report), never silently. A Policy is what was granted, not what a plugin asks for.
package confine

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// Program is the binary that applies a policy and becomes the plugin.
	Program = "hermes-confine"
	// ProgramFD is the descriptor of the verified program: the first after those that every worker inherits.
	ProgramFD = 4
	// SocketFD and DataFD are the folders of a plugin that runs as another user, which it could not reach by their
	// paths, as all above them is closed to others. The numbers are beyond those that the Go runtime may have opened and
	// below the least limit of open files.
	SocketFD = 50
	DataFD   = 51
	// CgroupEnv names the folder of the cgroup that the process puts itself into first, if the supervisor could make one.
	CgroupEnv = "HERMES_CGROUP"
	// ReportFlag makes the program print what this kernel enforces instead.
	ReportFlag = "--report"
)

// A Policy is what one plugin may do. It travels as JSON in the only argument of Program.
type Policy struct {
	Name    string   `json:"name"`           // its argv[0]
	Data    string   `json:"data"`           // its own folder, read and written
	Own     []string `json:"own"`            // further folders of its own, which are made if they are missing
	Read    []string `json:"read,omitempty"` // granted; a folder stands for all below it
	Write   []string `json:"write,omitempty"`
	Closed  []string `json:"closed,omitempty"`  // neither in nor below what is granted, wherever a link leads by now
	Connect []uint16 `json:"connect,omitempty"` // TCP ports
	Any     bool     `json:"any,omitempty"`     // any TCP port may be connected to
	Listen  []uint16 `json:"listen,omitempty"`
	User    string   `json:"user,omitempty"` // name or number; empty: that of the supervisor
	Limits  Limits   `json:"limits"`
}

// Limits are resource limits of each process of a plugin. 0 leaves what is inherited.
type Limits struct {
	FDs       uint64 `json:"fds,omitempty"`
	FileBytes uint64 `json:"file_bytes,omitempty"` // of one file
	// DataBytes is writable private memory. It is far above what the plugin is watched for: it only stops one that
	// grows faster than anybody can look.
	DataBytes uint64 `json:"data_bytes,omitempty"`
	// Processes of its user, threads among them. For a user of its own this is exact; otherwise it is on top of what
	// the user runs at the start.
	Processes uint64 `json:"processes,omitempty"`
}

// Encode is the argument for Program.
func (p Policy) Encode() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("policy of %s: %v", p.Name, err)) // strings and numbers only
	}
	return string(b)
}

// Decode reads what Encode wrote.
func Decode(s string) (Policy, error) {
	var p Policy
	if err := json.Unmarshal([]byte(s), &p); err != nil {
		return p, fmt.Errorf("policy: %w", err)
	}
	switch {
	case p.Name == "":
		return p, fmt.Errorf("policy: it names no plugin")
	case !filepath.IsAbs(p.Data):
		return p, fmt.Errorf("policy: the folder %q is not absolute", p.Data)
	}
	return p, nil
}

// A Layer is one wall around a plugin.
type Layer struct {
	Name     string `json:"name"`
	Enforced bool   `json:"enforced"`
	Detail   string `json:"detail"`
}

// A Report says which layers this kernel enforces.
type Report struct {
	ABI    int     `json:"landlock_abi"` // 0: the kernel has no Landlock
	Root   bool    `json:"root"`         // whoever asked is root, and can give plugins users of their own
	Layers []Layer `json:"layers"`
}

// Landlock's versions that brought what a Report tells of.
const (
	abiFiles    = 1
	abiTruncate = 3
	abiTCP      = 4
	abiScopes   = 6
	abiSockets  = 9
	abiUDP      = 10
)

// Layers is the report of a kernel with this version of Landlock; root says that the supervisor runs as root.
func Layers(abi int, root bool) Report {
	r := Report{ABI: max(abi, 0), Root: root}
	add := func(name string, enforced bool, detail string) {
		r.Layers = append(r.Layers, Layer{name, enforced, detail})
	}
	from := func(need int, yes, no string) (bool, string) {
		if abi >= need {
			return true, yes
		}
		return false, fmt.Sprintf("%s; it takes Landlock %d, this kernel has %d", no, need, r.ABI)
	}
	landlock := func(name string, need int, yes, no string) {
		ok, detail := from(need, yes, no)
		add(name, ok, detail)
	}
	add("environment", true, "cleared but for locale, proxies and PATH; no secret is in it")
	add("process group", true, "of its own, in a session without a terminal, ended as a whole, with what left it; in a cgroup where the supervisor may make one")
	add("limits", true, "open files, size of a file, memory, processes (watched), no core dumps")
	add("no new privileges", true, "setuid programs give it nothing")
	if root {
		add("capabilities", true, "dropped, although the supervisor runs as root")
	} else {
		add("capabilities", true, "none to begin with")
	}
	landlock("files", abiFiles, "only the system's libraries, its own folders and what was granted", "it can open whatever its user can")
	add("file modes", false, "it can change mode, owner and times of files that its user owns, not what is in them; no kernel keeps it from that, a user of its own does")
	landlock("truncation", abiTruncate, "as files", "it can truncate files that it cannot write")
	landlock("other processes", abiFiles, "their memory, environment and descriptors are out of reach", "it can look into the processes of its user")
	landlock("signals", abiScopes, "only to its own processes", "it can end the processes of its user")
	landlock("tcp", abiTCP, "only the ports that were granted (sockets of Multipath TCP are not covered)", "it can connect anywhere")
	landlock("abstract sockets", abiScopes, "only its own", "it can connect to abstract sockets, such as an X server's")
	landlock("sockets in files", abiSockets, "only its own", "it can connect to sockets whose files its user can; those of the supervisor know their peer")
	landlock("udp", abiUDP, "only what names are resolved with, if a port was granted", "it can send anywhere")
	return r
}

// WithUser is the report for a plugin that has a user of its own: what the kernel has always kept users from is enforced
// without Landlock. A supervisor that is not root cannot give a plugin a user, and does not start it.
func (r Report) WithUser(user string) Report {
	if user == "" {
		return r
	}
	r.Layers = slices.Clone(r.Layers)
	if !r.Root {
		r.Layers = append(r.Layers, Layer{"user", false, "only a supervisor that runs as root can start a plugin as " + user + ": this one does not start it"})
		return r
	}
	r.Layers = append(r.Layers, Layer{"user", true, "it runs as " + user + ", to whom everything above its own folder is closed"})
	for i, l := range r.Layers {
		switch l.Name {
		case "file modes":
			r.Layers[i] = Layer{l.Name, true, "only of what " + user + " owns: its own folder, if nothing else is given to that user"}
		case "other processes", "signals":
			if !l.Enforced {
				r.Layers[i] = Layer{l.Name, true, "only those of " + user}
			}
		case "files", "truncation":
			if !l.Enforced {
				r.Layers[i].Detail = "it can open what " + user + " can, which is what all users of this machine can"
			}
		}
	}
	return r
}

// Missing are the layers that are not enforced, as one line; empty if all are.
func (r Report) Missing() string {
	var names []string
	for _, l := range r.Layers {
		if !l.Enforced {
			names = append(names, l.Name)
		}
	}
	return strings.Join(names, ", ")
}

// CheckPath says why a path may not be granted: it must be absolute and clean, and neither hold nor be in a folder that
// is closed to plugins (the home, the run directory), whichever way the path is spelt.
func CheckPath(path string, closed ...string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("path %q must be absolute, without . and ..", path)
	}
	real := resolved(path)
	for _, c := range closed {
		for _, secret := range []string{c, resolved(c)} {
			if holds(real, secret) || holds(path, secret) {
				return fmt.Errorf("path %s holds %s, which no plugin may see", path, c)
			}
			if holds(secret, real) || holds(secret, path) {
				return fmt.Errorf("path %s is in %s, which no plugin may see", path, c)
			}
		}
	}
	return nil
}

// resolved follows links as far as the path exists.
func resolved(path string) string {
	var rest []string
	for p := path; ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			slices.Reverse(rest)
			return filepath.Join(append([]string{real}, rest...)...)
		}
		if p == filepath.Dir(p) {
			return path
		}
		rest = append(rest, filepath.Base(p))
	}
}

// holds says whether inner is folder or below it.
func holds(folder, inner string) bool {
	rel, err := filepath.Rel(folder, inner)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
