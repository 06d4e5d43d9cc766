// Command hello is the smallest tool plugin.
package main

import (
	"context"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

type args struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

func hello(_ context.Context, _ *plugins.Call, a args) (string, error) {
	return "Hello, " + a.Name + "!", nil
}

func main() {
	plugins.Main("hello", "0.1.0", plugins.Func("hello", "Greet somebody.", hello, plugins.ReadOnly()))
}
