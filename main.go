// Command hermes-supervisor runs and supervises an always-on agent, and talks to a running one.
package main

import (
	"os"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]))
}
