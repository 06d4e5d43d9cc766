// Command hermes-gateway is the gateway worker of hermes-supervisor: one process for each chat platform. The
// supervisor starts it and says which adapter it is.
package main

import (
	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/api"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram"
)

func main() {
	workers.Main(ipc.RoleGateway, gateway.New(gateway.Adapters{
		api.Platform:      api.Open,
		telegram.Platform: telegram.Open,
	}))
}
