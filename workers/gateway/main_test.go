package gateway_test

import (
	"os"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

func TestMain(m *testing.M) { gatewaytest.Main(m, nil) }

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits for what happens on other goroutines, and fails if it never does.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal("it never happened")
		}
		time.Sleep(time.Millisecond)
	}
}
