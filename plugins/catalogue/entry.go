package catalogue

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"
)

// An Entry is one plugin, as the lock file has it.
type Entry struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	SDK     string    `json:"sdk_version,omitempty"`
	SHA256  string    `json:"sha256"` // of the program, which is named by it
	Size    int64     `json:"size"`
	Source  string    `json:"source"` // where it was added from
	Added   time.Time `json:"added"`
	// Plain is for a program whose go-plugin has neither multiplexing nor mutual TLS: any that is not written in Go.
	Plain   bool        `json:"plain,omitempty"`
	Tools   []Tool      `json:"tools"`
	Wants   Permissions `json:"wants"`
	Granted Permissions `json:"granted"`
	State   string      `json:"state"`
	Reason  string      `json:"reason,omitempty"` // of the state, for a person
	Since   time.Time   `json:"since"`            // when the state was entered
}

// A Tool is what a plugin declared when it was added. It is what models see, whether or not the plugin runs.
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	Schema       json.RawMessage `json:"schema"`
	ReadOnly     bool            `json:"read_only,omitempty"`
	Checked      bool            `json:"checked,omitempty"`
	TimeoutMS    int64           `json:"timeout_ms,omitempty"`
	MaxTimeoutMS int64           `json:"max_timeout_ms,omitempty"`
}

// Limits of what a lock file may hold. They are above what the hub takes of one worker.
const (
	maxTools       = 256
	maxDescription = 16 << 10
	maxSchema      = 64 << 10
	maxList        = 64  // secrets, paths, ports
	maxText        = 512 // name of a secret, a path, a reason
)

var (
	pluginName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	toolName   = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// CheckName says why a plugin cannot be called so: the name becomes a folder, the name of a process and a word that
// people type.
func CheckName(name string) error {
	if !pluginName.MatchString(name) {
		return fmt.Errorf("plugin name %q: it must be lower case letters, digits, _ and -, begin with a letter and have at most 32 of them", cut(name, 80))
	}
	return nil
}

func (e Entry) check() error {
	if err := CheckName(e.Name); err != nil {
		return err
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("plugin %s: %s", e.Name, fmt.Sprintf(format, args...))
	}
	sum, err := hex.DecodeString(e.SHA256)
	switch {
	case err != nil || len(sum) != 32 || e.SHA256 != hex.EncodeToString(sum):
		return wrong("sha256 %q is not 64 lower case hexadecimal digits", cut(e.SHA256, 80))
	case e.Size <= 0:
		return wrong("size %d", e.Size)
	case !slices.Contains([]string{Enabled, Disabled, Quarantined}, e.State):
		return wrong("state %q is none of enabled, disabled and quarantined", cut(e.State, 80))
	case len(e.Tools) == 0 || len(e.Tools) > maxTools:
		return wrong("%d tools, 1 to %d are possible", len(e.Tools), maxTools)
	case len(e.Version) > maxText || len(e.SDK) > maxText || len(e.Source) > 4096 || len(e.Reason) > 16*maxText:
		return wrong("a text is too long")
	}
	seen := map[string]bool{}
	for _, t := range e.Tools {
		if err := t.check(); err != nil {
			return wrong("%v", err)
		}
		if seen[t.Name] {
			return wrong("two tools are named %s", t.Name)
		}
		seen[t.Name] = true
	}
	if err := e.Wants.Check(); err != nil {
		return wrong("wants: %v", err)
	}
	if err := e.Granted.Check(); err != nil {
		return wrong("granted: %v", err)
	}
	return nil
}

func (t Tool) check() error {
	var schema map[string]json.RawMessage
	switch {
	case !toolName.MatchString(t.Name):
		return fmt.Errorf("tool name %q is not made of 1 to 64 letters, digits, _ and -", cut(t.Name, 80))
	case t.Description == "" || len(t.Description) > maxDescription || !utf8.ValidString(t.Description):
		return fmt.Errorf("tool %s: the description has %d bytes, 1 to %d of UTF-8 are possible", t.Name, len(t.Description), maxDescription)
	case len(t.Schema) > maxSchema || json.Unmarshal(t.Schema, &schema) != nil:
		return fmt.Errorf("tool %s: the schema of its arguments is not a JSON object of at most %d bytes", t.Name, maxSchema)
	case t.TimeoutMS < 0 || t.MaxTimeoutMS < 0:
		return fmt.Errorf("tool %s: negative timeouts", t.Name)
	}
	return nil
}

// Permissions are what a plugin asks for, or was granted, beyond its own folders.
type Permissions struct {
	Secrets    []string `json:"secrets,omitempty"` // names in .env
	Read       []string `json:"read,omitempty"`    // absolute paths
	Write      []string `json:"write,omitempty"`
	Connect    []uint16 `json:"connect,omitempty"` // TCP ports
	ConnectAny bool     `json:"connect_any,omitempty"`
	Listen     []uint16 `json:"listen,omitempty"`
}

// Check says what of it cannot be meant.
func (p Permissions) Check() error {
	for _, n := range []int{len(p.Secrets), len(p.Read), len(p.Write), len(p.Connect), len(p.Listen)} {
		if n > maxList {
			return fmt.Errorf("%d of a kind, at most %d are possible", n, maxList)
		}
	}
	for _, s := range p.Secrets {
		if !secretName.MatchString(s) {
			return fmt.Errorf("secret %q is not the name of a variable", cut(s, 80))
		}
	}
	for _, path := range append(slices.Clone(p.Read), p.Write...) {
		if len(path) > maxText || !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return fmt.Errorf("path %q must be absolute, without . and .., and of at most %d bytes", cut(path, 80), maxText)
		}
	}
	if slices.Contains(p.Connect, 0) || slices.Contains(p.Listen, 0) {
		return fmt.Errorf("port 0")
	}
	return nil
}

// None says whether nothing is in it.
func (p Permissions) None() bool { return len(p.Words()) == 0 }

// Words says each permission as a person reads it, always in the same order.
func (p Permissions) Words() []string {
	var out []string
	for _, s := range p.Secrets {
		out = append(out, "secret "+s)
	}
	for _, s := range p.Read {
		out = append(out, "read "+s)
	}
	for _, s := range p.Write {
		out = append(out, "write "+s)
	}
	if p.ConnectAny {
		out = append(out, "connect to any port")
	}
	for _, n := range p.Connect {
		out = append(out, fmt.Sprintf("connect to port %d", n))
	}
	for _, n := range p.Listen {
		out = append(out, fmt.Sprintf("listen on port %d", n))
	}
	return out
}

// Sorted returns the same permissions in one order and without repetitions.
func (p Permissions) Sorted() Permissions {
	sorted := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	ports := func(list []uint16) []uint16 { return slices.Compact(slices.Sorted(slices.Values(list))) }
	return Permissions{
		Secrets: sorted(p.Secrets), Read: sorted(p.Read), Write: sorted(p.Write),
		Connect: ports(p.Connect), ConnectAny: p.ConnectAny, Listen: ports(p.Listen),
	}
}

func (e Entry) clone() Entry {
	e.Tools = slices.Clone(e.Tools)
	e.Wants, e.Granted = e.Wants.Sorted(), e.Granted.Sorted()
	return e
}

// cut shortens a text of unknown origin for an error.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
