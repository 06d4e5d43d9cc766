// Command hermes-confine shuts a tool plugin in and becomes it. The supervisor starts it in a plugin's place; it is a
// program of its own because none of what it does can be undone, and a small one because each start of a plugin pays it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine/enter"
)

// failed is EX_CONFIG: what is wrong will be wrong at the next start too.
const failed = 78

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", confine.Program, err)
		os.Exit(failed)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("this program is started by hermes-supervisor in the place of a plugin; " + confine.ReportFlag + " prints what this kernel enforces")
	}
	if args[0] == confine.ReportFlag {
		return json.NewEncoder(os.Stdout).Encode(enter.Report())
	}
	policy, err := confine.Decode(args[0])
	if err != nil {
		return err
	}
	return enter.Run(policy)
}
