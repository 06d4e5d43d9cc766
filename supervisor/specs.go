package supervisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

const (
	// spillFolder in the home holds whole tool outputs that were cut for the model.
	spillFolder = "tool-results"
	// platformsFolder in the home holds one folder an adapter, as Hermes has it.
	platformsFolder = "platforms"
)

// specs lists the workers that a configuration asks for, in the order of their start: what others call first.
func specs(c *config.Config) ([]worker.Spec, error) {
	list := []worker.Spec{toolsSpec(c)}
	for n := range c.Supervisor.AgentInstances {
		list = append(list, agentSpec(c, n+1))
	}
	list = append(list, worker.Spec{
		Name: ipc.RoleKanban, Role: ipc.RoleKanban, Required: true,
		Config: encode(ipc.KanbanConfig{Interval: c.Kanban.Interval}),
	})
	for _, platform := range c.EnabledAdapters() {
		list = append(list, gatewaySpec(c, platform))
	}
	for i := range list {
		s := &list[i]
		path, err := FindBinary("hermes-"+s.Role, c.Supervisor.Libexec)
		if err != nil {
			return nil, fmt.Errorf("worker %s: %w", s.Name, err)
		}
		limits := c.Supervisor.LimitsFor(s.Name, s.Role)
		s.Path, s.Dir = path, c.Home
		s.Limits = worker.Limits{FDs: limits.FDs, Memory: limits.Memory, Processes: limits.Processes}
		s.HealthInterval, s.Drain = c.Supervisor.HealthInterval, c.Supervisor.DrainTimeout
		s.Spares = c.Supervisor.SparesFor(s.Name, s.Role)
		s.Policy = policy(c.Supervisor.RestartFor(s.Name, s.Role))
	}
	return list, nil
}

func policy(r config.Restart) worker.Policy {
	return worker.Policy{MaxDelay: r.MaxDelay, Burst: r.Burst, Window: r.Window, SlowLane: slices.Clone(r.SlowLane), Recycles: r.Recycles}
}

func agentSpec(c *config.Config, n int) worker.Spec {
	via := proxies(c.Secrets, "")
	s := worker.Spec{
		Name: fmt.Sprintf("agent-%d", n), Role: ipc.RoleAgent,
		// One that serves is enough to be ready: the others are there for speed and for when it dies.
		Required: n == 1,
		Config: encode(ipc.AgentConfig{
			Provider: c.Model.Provider, Model: c.Model.Default, BaseURL: c.Model.BaseURL, APIKeyName: c.Model.APIKeyName, Proxies: via,
			MaxTurns: c.Agent.MaxTurns, APIRetries: max(1, c.Agent.APIMaxRetries), ToolsAtOnce: c.Supervisor.ToolsAtOnce,
			Home: c.Home, ContextFileMaxChars: c.ContextFileMaxChars,
			MemoryCharLimit: c.Memory.CharLimit, UserCharLimit: c.Memory.UserCharLimit,
		}),
	}
	s.Secrets = via
	if c.Model.APIKeyName != "" {
		s.Secrets = append(slices.Clone(via), c.Model.APIKeyName)
	}
	return s
}

func toolsSpec(c *config.Config) worker.Spec {
	return worker.Spec{
		Name: ipc.RoleTools, Role: ipc.RoleTools, Required: true,
		Config: encode(ipc.ToolsConfig{
			Home: c.Home, WorkDir: c.Terminal.Cwd, SpillDir: filepath.Join(c.Home, spillFolder),
			TerminalTimeout: c.Terminal.Timeout, MaxOutputChars: c.ToolOutput.MaxBytes, FileReadMaxChars: c.FileReadMaxChars,
			MemoryCharLimit: c.Memory.CharLimit, UserCharLimit: c.Memory.UserCharLimit, EnvPassthrough: c.Terminal.EnvPassthrough,
		}),
	}
}

func gatewaySpec(c *config.Config, platform string) worker.Spec {
	a, via := c.Adapters[platform], proxies(c.Secrets, platform)
	return worker.Spec{
		Name: "gateway-" + platform, Role: ipc.RoleGateway, Platform: platform,
		// A platform that cannot be reached must not keep the others from being served.
		Required: false,
		Secrets:  append(slices.Clone(a.Secrets), via...),
		Config: encode(ipc.GatewayConfig{
			Platform: platform, Settings: a.Settings, Dir: filepath.Join(c.Home, platformsFolder, platform), Proxies: via,
		}),
	}
}

// proxyVariables lead out of a closed network, in .env as in the environment.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// proxies names the proxies that are set for a worker that talks to the world, that of its platform among them. Their
// values may have a password: the worker asks for them as for any secret.
func proxies(s config.Secrets, platform string) []string {
	names := proxyVariables
	if platform != "" {
		names = append(slices.Clone(names), strings.ToUpper(platform)+"_PROXY")
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !s.Has(name) })
}

// encode makes the JSON of a worker's configuration. The types are ours and hold nothing that JSON cannot.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("configuration %T: %v", v, err))
	}
	return b
}

// Workers are stopped in two steps: gateways while agents and tools still serve what they wait for, then the rest.
var (
	firstToStop = []string{ipc.RoleGateway, ipc.RoleKanban}
	lastToStop  = []string{ipc.RoleAgent, ipc.RoleTools, ipc.RolePlugin, ipc.RoleCron}
)

// CheckBinaries returns a *MissingBinaryError if a worker that the configuration asks for is not installed.
func CheckBinaries(c *config.Config) error {
	_, err := specs(c)
	return err
}
