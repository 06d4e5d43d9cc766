package tools

import (
	"path/filepath"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
)

// places is where the tools work and what they must leave alone there.
type places struct {
	files   guard.Files
	workDir string // what relative paths are relative to
}

// path makes an absolute path of what the model wrote.
func (p *places) path(name string) string {
	switch {
	case name == "":
		return p.workDir
	case name == "~":
		return p.files.User
	case strings.HasPrefix(name, "~/"):
		return filepath.Join(p.files.User, name[2:])
	case !filepath.IsAbs(name):
		return filepath.Join(p.workDir, name)
	}
	return filepath.Clean(name)
}
