package plugins

import (
	"fmt"
	"path/filepath"
	"slices"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// UsesSecret says that the tool asks for secrets by these names. Whoever adds the plugin is asked to grant them; a name
// that was not granted is refused when it is asked for.
func UsesSecret(names ...string) Option {
	return wants(func(w *toolv1.Wants) { w.Secrets = append(w.Secrets, names...) })
}

// ReadsFiles says that the tool reads these files, or all below these folders. A plugin sees only the system's
// libraries, its own folder and what it asked for and was granted.
func ReadsFiles(paths ...string) Option {
	return func(t *Tool) {
		checkPaths(t, paths)
		wants(func(w *toolv1.Wants) { w.ReadPaths = append(w.ReadPaths, paths...) })(t)
	}
}

// WritesFiles says that the tool reads and writes these files, or all below these folders.
func WritesFiles(paths ...string) Option {
	return func(t *Tool) {
		checkPaths(t, paths)
		wants(func(w *toolv1.Wants) { w.WritePaths = append(w.WritePaths, paths...) })(t)
	}
}

// ConnectsTo says that the tool connects to these TCP ports, of any host; without a port, to any.
func ConnectsTo(ports ...uint16) Option {
	return wants(func(w *toolv1.Wants) {
		w.ConnectAny = w.ConnectAny || len(ports) == 0
		for _, p := range ports {
			w.ConnectPorts = append(w.ConnectPorts, uint32(p))
		}
	})
}

// ListensOn says that the tool listens on these TCP ports.
func ListensOn(ports ...uint16) Option {
	return wants(func(w *toolv1.Wants) {
		for _, p := range ports {
			w.ListenPorts = append(w.ListenPorts, uint32(p))
		}
	})
}

func wants(add func(*toolv1.Wants)) Option { return func(t *Tool) { add(t.wants) } }

func checkPaths(t *Tool, paths []string) {
	for _, p := range paths {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			t.err = fmt.Errorf("path %q must be absolute, without . and ..", p)
		}
	}
}

// allWants is what all tools together ask for, each thing once; nil if nothing.
func allWants(tools []Tool) *toolv1.Wants {
	var all toolv1.Wants
	for _, t := range tools {
		all.Secrets = append(all.Secrets, t.wants.Secrets...)
		all.ReadPaths = append(all.ReadPaths, t.wants.ReadPaths...)
		all.WritePaths = append(all.WritePaths, t.wants.WritePaths...)
		all.ConnectPorts = append(all.ConnectPorts, t.wants.ConnectPorts...)
		all.ListenPorts = append(all.ListenPorts, t.wants.ListenPorts...)
		all.ConnectAny = all.ConnectAny || t.wants.ConnectAny
	}
	for _, list := range []*[]string{&all.Secrets, &all.ReadPaths, &all.WritePaths} {
		*list = slices.Compact(slices.Sorted(slices.Values(*list)))
	}
	for _, list := range []*[]uint32{&all.ConnectPorts, &all.ListenPorts} {
		*list = slices.Compact(slices.Sorted(slices.Values(*list)))
	}
	if len(all.Secrets)+len(all.ReadPaths)+len(all.WritePaths)+len(all.ConnectPorts)+len(all.ListenPorts) == 0 && !all.ConnectAny {
		return nil
	}
	return &all
}
