package supervisor

import (
	"encoding/json"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// Zero means “the default” on the way to the agent, which nobody who wrote 0 wants.
func TestNoRetriesAreOneTry(t *testing.T) {
	for configured, want := range map[int]int{0: 1, 1: 1, 3: 3} {
		spec := agentSpec(&config.Config{Agent: config.Agent{APIMaxRetries: configured}}, 1)
		var got ipc.AgentConfig
		if err := json.Unmarshal([]byte(spec.Config), &got); err != nil {
			t.Fatal(err)
		}
		if got.APIRetries != want {
			t.Errorf("%d configured: %d tries, want %d", configured, got.APIRetries, want)
		}
	}
}
