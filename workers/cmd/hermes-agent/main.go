// Command hermes-agent is the agent worker of hermes-supervisor: it runs turns. The supervisor starts it.
package main

import (
	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent"
)

func main() { workers.Main(ipc.RoleAgent, new(agent.Agent)) }
