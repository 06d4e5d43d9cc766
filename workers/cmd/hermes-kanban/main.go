// Command hermes-kanban is the kanban worker of hermes-supervisor. The supervisor starts it.
package main

import (
	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/kanban"
)

func main() { workers.Main(ipc.RoleKanban, kanban.New(kanban.WallClock{})) }
