package store_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Tests that need another process run this binary again with childVar set to the name of a function here.
const childVar = "STORE_TEST_CHILD"

var children = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVar); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
