// Command keeper is a tool plugin that has a secret and is curious about those of others, for the tests.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

// Set by the linker: one program makes several plugins.
var (
	name  = "keeper"
	wants = "" // the name of its secret
	plain = "" // not empty: as one in a language that has neither TLS nor multiplexing
)

type args struct {
	What string `json:"what" jsonschema:"the name of a secret, or a path"`
}

func main() {
	if plain != "" {
		_ = os.Unsetenv("PLUGIN_CLIENT_CERT")
		_ = os.Unsetenv("PLUGIN_MULTIPLEX_GRPC")
	}
	plugins.Main(name, "0.1.0",
		plugins.Func(name+"_sum", "The sum of a secret, by which it is known to have been read.", sum, plugins.UsesSecret(wants)),
		plugins.Func(name+"_read", "Read a file.", read))
}

func sum(ctx context.Context, c *plugins.Call, a args) (string, error) {
	value, err := c.Secret(ctx, a.What)
	if err != nil {
		return "", err
	}
	s := sha256.Sum256([]byte(value))
	return hex.EncodeToString(s[:]), nil
}

func read(_ context.Context, _ *plugins.Call, a args) (string, error) {
	b, err := os.ReadFile(a.What)
	return fmt.Sprintf("read %d bytes", len(b)), err
}
