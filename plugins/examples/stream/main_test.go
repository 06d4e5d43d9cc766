package main

import (
	"slices"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/plugintest"
)

func TestPlugin(t *testing.T) {
	path := plugintest.Build(t, ".")
	plugintest.Run(t, path, plugintest.Options{},
		plugintest.Example{Tool: "countdown", Arguments: `{"from":20,"pause_ms":1}`, Want: `"counted":20`},
		plugintest.Example{Tool: "countdown", Arguments: `{"from":1000,"pause_ms":10000}`, Slow: true})

	t.Run("OutputComesAsItIsMade", func(t *testing.T) {
		p := plugintest.Start(t, path, plugintest.Options{})
		o := p.Call(t.Context(), "countdown", `{"from":20,"pause_ms":0}`)
		if string(o.Chunks[:6]) != "20\n19\n" || !slices.Equal(o.Progress, []string{"20 to go", "10 to go"}) {
			t.Errorf("chunks %q, progress %q", o.Chunks, o.Progress)
		}
	})
}
