package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// byHand runs a command line of a plugin in this process.
func byHand(t *testing.T, in string, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := program{name: "weather", version: "0.1.0", in: strings.NewReader(in), out: &stdout, err: &stderr, tools: []Tool{
		echoTool(Check(func(_ context.Context, a forecastArgs) Verdict { return Ask("it may rain", "look at "+a.City) })),
		tool("secret", func(ctx context.Context, c *Call) (any, error) {
			v, err := c.Secret(ctx, "WEATHER_TEST_SECRET")
			return len(v), err
		}),
		tool("talks", func(_ context.Context, c *Call) (any, error) {
			c.Progress("half way")
			_, err := c.Write([]byte("raw\n"))
			return "done", err
		}),
		tool("fails", func(context.Context, *Call) (any, error) { panic("no reason") }),
	}}
	code = p.run(t.Context(), args)
	return code, stdout.String(), stderr.String()
}

func TestAPluginCanBeUsedByHand(t *testing.T) {
	t.Setenv("WEATHER_TEST_SECRET", "four")
	for _, row := range []struct {
		name     string
		args     []string
		in       string
		code     int
		out, err string
	}{
		{"nothing", nil, "", ipc.ExitUsage, "", "invoke TOOL"},
		{"help", []string{"--help"}, "", ipc.ExitOK, "forecast  Weather.", ""},
		{"version", []string{"version"}, "", ipc.ExitOK, "weather 0.1.0 sdk " + SDKVersion, ""},
		{"unknown", []string{"frobnicate"}, "", ipc.ExitUsage, "", `"frobnicate" is not how it is used`},
		{"call", []string{"invoke", "forecast", `{"city":"Oslo"}`}, "", ipc.ExitOK, `{"city":"Oslo","days":3,"unit":"celsius"}` + "\n", ""},
		{"call from stdin", []string{"invoke", "forecast", "-"}, `{"city":"Rome"}`, ipc.ExitOK, `"Rome"`, ""},
		{"call without arguments", []string{"invoke", "talks"}, "", ipc.ExitOK, "done\n", "half way"},
		{"output", []string{"invoke", "talks"}, "", ipc.ExitOK, "done\n", "raw\n"},
		{"bad arguments", []string{"invoke", "forecast", `{}`}, "", ipc.ExitUsage, "", `"city" is missing`},
		{"unknown tool", []string{"invoke", "forcast", `{}`}, "", ipc.ExitFailed, "", `tool "forcast": not found`},
		{"panic", []string{"invoke", "fails"}, "", ipc.ExitFailed, "", "no reason"},
		{"secret", []string{"invoke", "secret"}, "", ipc.ExitOK, "4\n", ""},
		{"check", []string{"check", "forecast", `{"city":"Oslo"}`}, "", ipc.ExitOK, "ask\nit may rain\nlook at Oslo\n", ""},
		{"no check", []string{"check", "talks"}, "", ipc.ExitOK, "allow\n", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, out, err := byHand(t, row.in, row.args...)
			if code != row.code || !strings.Contains(out, row.out) || !strings.Contains(err, row.err) {
				t.Errorf("exit code %d, %q, %q", code, out, err)
			}
			if row.out == "" && out != "" {
				t.Errorf("an error is on stdout: %q", out)
			}
		})
	}
}

func TestDescribeIsAStableDocument(t *testing.T) {
	code, out, _ := byHand(t, "", "describe")
	var d struct {
		Plugin, Version string
		SDK             string `json:"sdk_version"`
		Tools           []toolInfo
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != ipc.ExitOK {
		t.Fatalf("%v in %s", err, out)
	}
	if d.Plugin != "weather" || d.Version != "0.1.0" || d.SDK != SDKVersion || len(d.Tools) != 4 || d.Tools[0].Name != "forecast" || !d.Tools[0].Checked {
		t.Errorf("%+v", d)
	}
}

func TestASecretThatIsNotThereSaysHowToSetIt(t *testing.T) {
	if code, _, err := byHand(t, "", "invoke", "secret"); code != ipc.ExitFailed || !strings.Contains(err, "set it in the environment") {
		t.Errorf("exit code %d, %q", code, err)
	}
}
