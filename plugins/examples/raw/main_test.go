package main

import (
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/plugintest"
)

func TestPlugin(t *testing.T) {
	path := plugintest.Build(t, ".")
	for name, plain := range map[string]bool{"multiplexed": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			plugintest.Run(t, path, plugintest.Options{NoCommandLine: true, Plain: plain},
				plugintest.Example{Tool: "reverse", Arguments: `{"text":"Grüße"}`, Want: "eßürG"})
		})
	}
}
