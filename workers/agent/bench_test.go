package agent

import (
	"context"
	"fmt"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
)

// BenchmarkTurn is what a turn costs beside the provider, the store and the tools: all of them answer at once here.
func BenchmarkTurn(b *testing.B) {
	for name, text := range map[string]string{"no_call": "hello", "1_call": "run: a", "8_calls": "run: a\nrun: a\nrun: a\nrun: a\nrun: a\nrun: a\nrun: a\nrun: a"} {
		b.Run(name, func(b *testing.B) {
			host := agenttest.NewHost()
			host.Tools["terminal"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result { return agenttest.Result(`{"output":"x"}`) }}
			b.Cleanup(host.Close)
			w := agenttest.Start(b, host, &Agent{}, ipc.AgentConfig{Provider: "offline"})
			n := 0
			for b.Loop() {
				n++
				id := fmt.Sprint("t", n)
				host.Reset()
				host.Accept(id, text)
				if err := w.Run(b, id).Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
