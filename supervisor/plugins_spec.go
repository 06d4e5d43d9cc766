package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

const confineName = confine.Program

const (
	// pluginFileBytes is the most that a plugin may write into one file: a disk that a plugin fills is everybody's.
	pluginFileBytes = 1 << 30
	// sharedProcesses times as many processes as a plugin may have is what the kernel lets it add to those of a user that
	// others use as well: it counts all of a user's, so what others start later takes from it. The exact bound is watched.
	sharedProcesses = 4
	// outputs is the folder in a plugin's own one for whole outputs that were cut.
	outputs = "outputs"
	// pluginWords is the folder in a plugin's own one for its last lines when the supervisor is gone.
	pluginWords = "last-words"
)

// spec is the worker of a plugin: its program, opened and verified anew at each start, in the hands of hermes-confine.
func (h *pluginHost) spec(e catalogue.Entry, name string) (worker.Spec, error) {
	program, err := h.confined()
	if err != nil {
		return worker.Spec{}, err
	}
	c := h.config
	set := c.Supervisor.PluginFor(e.Name)
	limits := c.Supervisor.LimitsFor(config.PluginWorker(e.Name), ipc.RolePlugin)
	s := pluginSpec(h.cat, e, quarters{program: program, data: h.cat.DataDir(e.Name), closed: h.shut, set: set, limits: limits})
	s.Name, s.Lazy = name, true
	s.HealthInterval, s.Drain, s.Policy = c.Supervisor.HealthInterval, c.Supervisor.DrainTimeout, policy(c.Supervisor.Restart)
	open := s.Files
	s.Files = func() ([]*os.File, error) {
		// What was granted is looked at anew: a link may lead elsewhere by now.
		if err := checkGranted(e.Granted, h.shut); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", e.Name, err)
		}
		return open()
	}
	return s, nil
}

// quarters are where a plugin lives.
type quarters struct {
	program string   // shuts it in
	data    string   // its own folder
	closed  []string // folders that no grant opens
	set     config.Plugin
	limits  config.Limits
}

// pluginSpec is what every start of a plugin has in common, for work or to be looked at.
func pluginSpec(cat *catalogue.Catalogue, e catalogue.Entry, q quarters) worker.Spec {
	set, limits := q.set, q.limits
	p := confine.Policy{
		Name: e.Name, Data: q.data, Closed: q.closed, Read: e.Granted.Read, Write: e.Granted.Write,
		Connect: e.Granted.Connect, Any: e.Granted.ConnectAny, Listen: e.Granted.Listen, User: set.User,
		Limits: confine.Limits{FDs: limits.FDs, FileBytes: pluginFileBytes, DataBytes: dataLimit(limits.Memory), Processes: uint64(sharedProcesses * set.Processes)},
	}
	inside := q.data // as the plugin reaches its folder
	s := worker.Spec{
		Name: config.PluginWorker(e.Name), Role: ipc.RolePlugin, Path: q.program, Secrets: e.Granted.Secrets, Plain: e.Plain, CgroupEnv: confine.CgroupEnv,
		Limits: worker.Limits{FDs: limits.FDs, Memory: limits.Memory, Processes: set.Processes},
	}
	if set.User != "" {
		p.Limits.Processes = uint64(set.Processes)
		inside = fmt.Sprintf("/proc/self/fd/%d", confine.DataFD)
		s.SocketAlias = fmt.Sprintf("/proc/self/fd/%d", confine.SocketFD)
	}
	// It makes the folder itself: one that was made for it, or granted, by a path which it can change might lead elsewhere.
	s.Env = []string{ipc.LastWordsEnv + "=" + filepath.Join(inside, pluginWords, s.Name)}
	s.Args = []string{p.Encode()}
	settings, err := json.Marshal(set.Settings)
	if err != nil || set.Settings == nil {
		settings = nil // what YAML has and JSON has not (a key that is no text) was refused when it was read
	}
	s.Config = encode(ipc.PluginConfig{
		ScratchDir: filepath.Join(inside, catalogue.Temp), SpillDir: filepath.Join(inside, outputs), Settings: settings,
	})
	s.Files = func() ([]*os.File, error) {
		f, err := cat.Program(e)
		if err != nil {
			return nil, err
		}
		if set.User != "" {
			// Another user must be able to execute it; it reaches it by the descriptor alone.
			if err := f.Chmod(0o555); err != nil {
				_ = f.Close()
				return nil, fmt.Errorf("plugin %s: let user %s execute it: %w", e.Name, set.User, err)
			}
		}
		return []*os.File{f}, nil
	}
	return s
}

// dataLimit is twice the memory that a plugin is watched for, and what a runtime reserves without using it: it only stops
// one that grows faster than it is looked at.
func dataLimit(memory int64) uint64 {
	if memory <= 0 {
		return 0
	}
	return 2*uint64(memory) + 512<<20
}

// checkGranted refuses paths by which a plugin would see the home, or the sockets of the supervisor and of other workers.
func checkGranted(p catalogue.Permissions, closed []string) error {
	for _, path := range append(append([]string{}, p.Read...), p.Write...) {
		if err := confine.CheckPath(path, closed...); err != nil {
			return err
		}
	}
	return nil
}

// spillOf returns what translates the paths of a plugin's outputs. Only files in its own folder are named to others.
func (h *pluginHost) spillOf(name string, other bool) func(string) string {
	dir := filepath.Join(h.cat.DataDir(name), outputs)
	seen := dir
	if other {
		seen = fmt.Sprintf("/proc/self/fd/%d/%s", confine.DataFD, outputs)
	}
	return func(path string) string {
		rel, err := filepath.Rel(seen, path)
		if err != nil || rel == "." || strings.ContainsRune(rel, filepath.Separator) {
			return ""
		}
		path = filepath.Join(dir, rel)
		if !ownOutput(dir, path) {
			return ""
		}
		return path
	}
}

// ownOutput says whether a path is a file in a folder, and not another name of one elsewhere. The plugin can change both.
func ownOutput(dir, path string) bool {
	folder, err := os.Lstat(dir)
	if err != nil || !folder.IsDir() {
		return false
	}
	file, err := os.Lstat(path)
	if err != nil || !file.Mode().IsRegular() {
		return false
	}
	sys, ok := file.Sys().(*syscall.Stat_t)
	return ok && sys.Nlink == 1
}

// specsOf are the tools of an entry as the hub knows tools.
func specsOf(tools []catalogue.Tool) []*toolv1.ToolSpec {
	var list []*toolv1.ToolSpec
	for _, t := range tools {
		list = append(list, &toolv1.ToolSpec{
			Name: t.Name, Description: t.Description, InputSchemaJson: string(t.Schema), ReadOnly: t.ReadOnly,
			Checked: t.Checked, DefaultTimeoutMs: t.TimeoutMS, MaxTimeoutMs: t.MaxTimeoutMS,
		})
	}
	return list
}
