package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func parsed(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return families
}

func TestMetricsAreWhatPrometheusReads(t *testing.T) {
	r := newRig(t)
	r.control.status = someStatus()
	r.control.status.Workers[3].Name = "gateway-\"\\\napi"
	text := r.must("ctl", "metrics")
	golden(t, "metrics.txt", text)
	families := parsed(t, text)
	for name, f := range families {
		if counts := strings.HasSuffix(name, "_total"); counts != (f.GetType() == dto.MetricType_COUNTER) || !strings.HasPrefix(name, "hermes_") || f.GetHelp() == "" {
			t.Errorf("%s is a %v: %q", name, f.GetType(), f.GetHelp())
		}
	}
	workers := families["hermes_worker_restarts_total"].GetMetric()
	if len(workers) != 4 || workers[1].GetCounter().GetValue() != 3 || workers[3].GetLabel()[0].GetValue() != "gateway-\"\\\napi" {
		t.Errorf("restarts %v", workers)
	}
	parsed(t, func() string { r.control.status = &controlv1.StatusResponse{}; return r.must("ctl", "metrics") }())
}

func TestMetricsAreServedOnThisMachineOnly(t *testing.T) {
	r := newRig(t)
	r.control.status = someStatus()
	for _, address := range []string{"0.0.0.0:9464", ":9464", "example.org:80", "9464", "[::]:1"} {
		if _, stderr, code := r.run("ctl", "metrics", "--listen", address); code != ipc.ExitUsage || !strings.Contains(stderr, "--listen") {
			t.Errorf("%s: exit %d, %q", address, code, stderr)
		}
	}
	path := filepath.Join(r.base, "m.sock")
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, []string{"--home", r.home, "--run-dir", r.base, "ctl", "metrics", "--listen", "unix:" + path}, streams{in: strings.NewReader(""), out: &out, err: &errOut})
	}()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		for {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			if err == nil || ctx.Err() != nil {
				return conn, err
			}
		}
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	get := func(url string) (int, string) {
		t.Helper()
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if code, text := get("http://x/metrics"); code != 200 || len(parsed(t, text)) < 15 {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := get("http://x/else"); code != 404 {
		t.Errorf("another path: %d", code)
	}
	cancel()
	if code := <-ended; code != 0 || errOut.Len() > 0 {
		t.Errorf("exit %d, %s", code, errOut.String())
	}
}

func TestWatchWritesOneDocumentALine(t *testing.T) {
	r := newRig(t)
	r.control.status = someStatus()
	r.control.events = []*controlv1.Event{{Id: 1, Kind: "worker_exited", Worker: "tools"}}
	out, _, code := r.run("ctl", "watch", "--interval", "100ms")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	kinds := map[string]int{}
	for line := range strings.Lines(out) {
		var doc map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		var kind string
		_ = json.Unmarshal(doc["type"], &kind)
		if doc[kind] == nil {
			t.Errorf("no %s in %q", kind, line)
		}
		kinds[kind]++
	}
	if kinds["event"] != 1 {
		t.Errorf("documents %v", kinds)
	}
	if _, _, code := r.run("ctl", "watch", "--interval", "1ms"); code != ipc.ExitUsage {
		t.Errorf("exit %d", code)
	}
}
