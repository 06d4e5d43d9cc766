// Command hermes-terminal is the chat in a terminal. `hermes-supervisor chat` starts it, so that the supervisor itself
// links no terminal UI.
package main

import (
	"os"

	"github.com/hermes-supervisor/hermes-supervisor/workers/terminal"
)

func main() {
	os.Exit(terminal.Main(os.Args[1:]))
}
