package main

import (
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/plugintest"
)

func TestPlugin(t *testing.T) {
	plugintest.Run(t, plugintest.Build(t, "."), plugintest.Options{},
		plugintest.Example{Tool: "hello", Arguments: `{"name":"Ann"}`, Want: "Hello, Ann!"})
}
