// Command hermes-tools is the worker of the built-in tools. The supervisor starts it.
package main

import (
	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools"
)

func main() {
	workers.Main(ipc.RoleTools, tools.New())
}
