package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

// openaiClient is the official client, pinned: a later one is tried by changing this line.
const openaiClient = "openai@6.49.0"

// TestOfficialClient lets the client that most programs use talk to the adapter. It is installed from the npm
// registry; without npm or the registry the test is skipped, unless HERMES_REQUIRE_NPM is set, as where it must run.
func TestOfficialClient(t *testing.T) {
	dir := t.TempDir()
	skip := t.Skipf
	if os.Getenv("HERMES_REQUIRE_NPM") != "" {
		skip = t.Fatalf
	}
	node, err := exec.LookPath("node")
	if err != nil {
		skip("node is not installed, so the official client was not tried: %v", err)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		skip("npm is not installed, so the official client was not tried: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "install", "--no-audit", "--no-fund", "--ignore-scripts",
		"--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--prefix", dir, openaiClient) // an offline machine is soon found out
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		skip("%s cannot be installed, so it was not tried: %v\n%s", openaiClient, err, out)
	}
	script, err := os.ReadFile("testdata/openai.mjs")
	if err != nil {
		t.Fatal(err)
	}
	// Beside node_modules, or it would not find the client.
	path := filepath.Join(dir, "openai.mjs")
	if err := os.WriteFile(path, script, 0o600); err != nil {
		t.Fatal(err)
	}
	h := gatewaytest.NewHost(t, Platform)
	h.Secrets[keySecret] = "official"
	s := serveWith(t, h, gateway.Settings{"max_concurrent_runs": 2})
	d := newDirector(s)
	control := httptest.NewServer(d)
	defer control.Close()
	defer d.end()
	run := exec.CommandContext(ctx, node, path, s.url+"/v1", "official", control.URL)
	run.Dir = dir
	out, err := run.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("%s: %v", openaiClient, err)
	}
}

// A director plays the turns that the script asks for, and takes its orders.
type director struct {
	s       *server
	mux     *http.ServeMux
	over    chan struct{}
	release chan struct{}
	die     chan struct{}

	mu          sync.Mutex
	changed     *sync.Cond
	counted     int
	held        int
	endless     int
	interrupted []string
	ended       bool
}

func newDirector(s *server) *director {
	d := &director{s: s, mux: http.NewServeMux(), over: make(chan struct{}), release: make(chan struct{}), die: make(chan struct{})}
	d.changed = sync.NewCond(&d.mu)
	s.h.Script = d.play
	d.mux.HandleFunc("/held", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		d.until(func() bool { return d.held >= n })
	})
	d.mux.HandleFunc("/endless", func(http.ResponseWriter, *http.Request) { d.until(func() bool { return d.endless >= 2 }) })
	d.mux.HandleFunc("/interrupted", func(w http.ResponseWriter, _ *http.Request) {
		d.until(func() bool { return len(d.interrupted) > 0 })
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.interrupted) > 0 {
			_, _ = io.WriteString(w, d.interrupted[0])
			d.interrupted = d.interrupted[1:]
		}
	})
	d.mux.HandleFunc("/release", func(http.ResponseWriter, *http.Request) { close(d.release) })
	d.mux.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { close(d.die) })
	d.mux.HandleFunc("/stop", func(http.ResponseWriter, *http.Request) { s.stop() })
	return d
}

func (d *director) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// until waits for a change that makes holds true, or the end.
func (d *director) until(holds func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !holds() && !d.ended {
		d.changed.Wait()
	}
}

func (d *director) note(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	d.changed.Broadcast()
}

func (d *director) end() { d.note(func() { d.ended = true }) }

func (d *director) play(u *gatewaytest.Turn) string {
	switch u.Text() {
	case "words":
		u.Usage = &turnv1.Usage{InputTokens: 4, OutputTokens: 3}
		u.Followed()
		for _, w := range []string{"one ", "two ", "three"} {
			u.Say(w)
		}
		return "one two three"
	case "tools":
		u.Followed()
		u.Say("Let me look.")
		u.Tool("search_files", "*.go")(true)
		u.NextStep()
		u.Say("Found it.")
		return "Found it."
	case "fail":
		u.Outcome, u.Error = turnv1.Outcome_OUTCOME_FAILED, "401"
		return "The provider refuses the key."
	case "count":
		n := 0
		d.note(func() { d.counted++; n = d.counted })
		return fmt.Sprint("number ", n)
	case "hold":
		d.note(func() { d.held++ })
		wait(u, d.release)
		return "held"
	case "endless":
		return d.endlessly(u)
	case "die":
		u.Say("half of ")
		wait(u, d.die)
		u.Restart()
		u.Say("half of the answer")
		return "half of the answer"
	case "stop":
		u.Say("going")
		<-u.Over()
		return "gone"
	}
	return gatewaytest.Answer(u.Text())
}

func (d *director) endlessly(u *gatewaytest.Turn) string {
	d.note(func() { d.endless++ })
	for {
		u.Say("and ")
		select {
		case <-u.Interrupted():
			d.note(func() { d.interrupted = append(d.interrupted, u.Text()) })
			return "stopped"
		case <-u.Over():
			return "over"
		case <-time.After(5 * time.Millisecond): // a model takes its time
		}
	}
}
