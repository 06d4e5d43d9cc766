package plugintest

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
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
	const key = "a-key-that-nobody-may-see"
	signed := Example{Tool: "sign_text", Arguments: `{"text":"Straße"}`, Want: "d494e3820a94914b"}
	Run(t, path, Options{Plain: true, Secrets: map[string]string{"SIGNING_KEY": key}},
		Example{Tool: "count_words", Arguments: `{"text":"one Straße three"}`, Want: "3"}, signed)

	p := Start(t, path, Options{Plain: true, Secrets: map[string]string{"SIGNING_KEY": key}})
	if o := p.Call(t.Context(), "sign_text", signed.Arguments); !slices.Equal(o.Progress, []string{"fetching the key"}) || strings.Contains(o.Content+p.Output(), key) {
		t.Errorf("%+v", o)
	}
	if w := p.Describe().Wants.GetSecrets(); !slices.Equal(w, []string{"SIGNING_KEY"}) {
		t.Errorf("it wants %v", w)
	}
	p = Start(t, path, Options{Plain: true})
	if o := p.Call(t.Context(), "sign_text", signed.Arguments); o.Kind != toolv1.ToolError_KIND_FAILED || !strings.Contains(o.Message, "not granted to this plugin") {
		t.Errorf("without the secret: %+v", o)
	}
	for _, row := range []struct {
		env, tool, arguments string
		code                 int
		says                 string
	}{
		{"SIGNING_KEY=" + key, "sign_text", signed.Arguments, 0, signed.Want},
		{"", "sign_text", signed.Arguments, 1, "SIGNING_KEY"},
		{"", "count_words", `{"text":1}`, 2, "and nothing else"},
		{"", "no_tool", `{}`, 2, "plugin.py invoke"},
	} {
		cmd := exec.Command(path, "invoke", row.tool, row.arguments)
		cmd.Env = []string{row.env, "PATH=/usr/bin:/bin"}
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != row.code || !strings.Contains(string(out), row.says) {
			t.Errorf("by hand %s %s: exit %d, %s", row.tool, row.arguments, cmd.ProcessState.ExitCode(), out)
		}
	}
}
