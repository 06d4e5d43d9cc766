package supervisor

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

const modulePath = "github.com/hermes-supervisor/hermes-supervisor"

// LibexecEnv names a folder that is searched for worker binaries before the usual places.
const LibexecEnv = "HERMES_LIBEXEC"

// A MissingBinaryError says where a worker's binary was looked for. It is a fault of the installation.
type MissingBinaryError struct {
	Name    string
	Folders []string
}

func (e *MissingBinaryError) Error() string {
	return fmt.Sprintf("%s is not in any of %v; the supervisor and its workers are installed together: "+
		"go install -tags sqlite_fts5,sqlite_omit_load_extension %[3]s@%[4]s %[3]s/workers/cmd/...@%[4]s (or make install)",
		e.Name, e.Folders, modulePath, installVersion())
}

// Unwrap makes commands exit with the code for configuration.
func (e *MissingBinaryError) Unwrap() error { return config.ErrInvalid }

// installVersion is what `go install` understands: a build from a checkout has no version to ask for.
func installVersion() string {
	if v := ipc.Version(); len(v) > 1 && v[0] == 'v' {
		return v
	}
	return "latest"
}

// FindBinary returns the path of a binary of this installation: in configured (if not empty), in $HERMES_LIBEXEC,
// beside this executable, or in ../libexec/hermes-supervisor from there.
func FindBinary(name, configured string) (string, error) {
	var folders []string
	for _, dir := range []string{configured, os.Getenv(LibexecEnv)} {
		if dir != "" {
			folders = append(folders, dir)
		}
	}
	if self, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			self = real
		}
		dir := filepath.Dir(self)
		folders = append(folders, dir, filepath.Join(dir, "..", "libexec", "hermes-supervisor"))
	}
	for _, dir := range folders {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", &MissingBinaryError{Name: name, Folders: folders}
}
