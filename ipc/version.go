package ipc

import "runtime/debug"

// version is set by the Makefile with -ldflags "-X …/ipc.version=…".
var version string

// Version names the build. A supervisor and its built-in workers must be of one build: their messages are checked
// for agreement only within a protocol version, their behaviour is not.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
