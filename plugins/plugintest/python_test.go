package plugintest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestThePythonExample runs the suite on the example in Python, by the interpreter that its first line names.
func TestThePythonExample(t *testing.T) {
	path, err := filepath.Abs("../examples/python/plugin.py")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf").CombinedOutput(); err != nil {
		t.Skipf("/usr/bin/python3 with grpc and google.protobuf is wanted (Debian: apt install python3-grpcio): %v\n%s", err, out)
	}
	Run(t, path, Options{NoCommandLine: true, Plain: true},
		Example{Tool: "count_words", Arguments: `{"text":"one Straße three"}`, Want: "3"})
}
