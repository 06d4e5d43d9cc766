package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

func TestKey(t *testing.T) {
	s := serveAdapter(t, "correct horse", nil)
	for _, c := range []struct {
		name, path, header string
		status             int
	}{
		{"right", "/v1/models", "Bearer correct horse", 200},
		{"scheme in small letters", "/v1/models", "bearer correct horse", 200},
		{"wrong", "/v1/models", "Bearer battery", 401},
		{"a beginning", "/v1/models", "Bearer correct", 401},
		{"another scheme", "/v1/models", "Basic correct horse", 401},
		{"no scheme", "/v1/models", "correct horse", 401},
		{"none", "/v1/models", "", 401},
		{"none, a path that is not there", "/v1/files", "", 401},
		{"none, but open", "/health", "", 200},
		{"none, but open too", "/v1/health", "", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.send("GET", c.path, "", "Authorization", c.header)
			if r.status != c.status {
				t.Errorf("%d, want %d", r.status, c.status)
			}
			if c.status == 401 {
				f := r.failure(t)
				if f.Type != typeAuth || *f.Code != "invalid_api_key" || r.header.Get("WWW-Authenticate") == "" || !strings.Contains(f.Message, keySecret) {
					t.Errorf("%+v, %v", f, r.header)
				}
			}
			if strings.Contains(r.body, "correct horse") {
				t.Error("the answer holds the key")
			}
		})
	}
	if r := s.ask("x"); r.status != 401 || len(s.h.Turns()) != 0 {
		t.Errorf("a question without the key: %d, %d turns", r.status, len(s.h.Turns()))
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		host   string
		listed []string
		status int
	}{
		{"localhost", nil, 200},
		{"LOCALHOST:1234", nil, 200},
		{"localhost.", nil, 200},
		{"127.0.0.1:8642", nil, 200},
		{"127.9.9.9", nil, 200},
		{"[::1]:8642", nil, 200},
		{"evil.example", nil, 403},
		{"localhost.evil.example", nil, 403},
		{"127.0.0.1.evil.example", nil, 403},
		{"10.0.0.1", nil, 403},
		{"0.0.0.0", nil, 403},
		{"agent.example", []string{"agent.example"}, 200},
		{"Agent.Example:443", []string{"agent.example"}, 200},
		{"other.example", []string{"agent.example"}, 403},
	} {
		t.Run(c.host, func(t *testing.T) {
			s := serveAdapter(t, "", gateway.Settings{"allowed_hosts": c.listed})
			for _, path := range []string{"/health", "/v1/models"} {
				r := s.send("GET", path, "", "Host", c.host)
				if r.status != c.status {
					t.Errorf("%s: %d, want %d", path, r.status, c.status)
				}
				if c.status == 403 && *r.failure(t).Code != "host_not_allowed" {
					t.Errorf("%s: %s", path, r.body)
				}
			}
		})
	}
}

func TestPages(t *testing.T) {
	s := serveAdapter(t, "", gateway.Settings{"allowed_origins": []string{"https://ui.example"}})
	const good, evil = "https://ui.example", "https://evil.example"
	for _, origin := range []string{evil, "null", "https://ui.example.evil", "http://ui.example", "http://127.0.0.1:8642"} {
		r := s.ask("x", "Origin", origin)
		if f := r.failure(t); r.status != 403 || *f.Code != "origin_not_allowed" || r.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %+v", origin, r.status, r.header)
		}
	}
	if r := s.send("OPTIONS", completions, "", "Origin", evil, "Access-Control-Request-Method", "POST"); r.status != 403 {
		t.Errorf("preflight of a stranger: %d", r.status)
	}
	if len(s.h.Turns()) != 0 {
		t.Error("a page of a stranger started a turn")
	}
	r := s.send("OPTIONS", completions, "", "Origin", good, "Access-Control-Request-Method", "POST")
	if r.status != 204 || r.header.Get("Access-Control-Allow-Origin") != good || !strings.Contains(r.header.Get("Access-Control-Allow-Headers"), idempotencyHeader) {
		t.Errorf("preflight: %d %v", r.status, r.header)
	}
	if r := s.ask("x", "Origin", good); r.status != 200 || r.header.Get("Access-Control-Allow-Origin") != good || !strings.Contains(r.header.Get("Access-Control-Expose-Headers"), sessionHeader) {
		t.Errorf("request: %d %v", r.status, r.header)
	}
	plain := serveAdapter(t, "", nil)
	if r := plain.ask("x"); r.header.Get("Access-Control-Allow-Origin") != "" || r.header.Get("Vary") != "" {
		t.Errorf("headers for pages without any being allowed: %v", r.header)
	}
}

func TestWhereItListens(t *testing.T) {
	for _, c := range []struct{ name, listen, key, err string }{
		{"loopback", "127.0.0.1:0", "", ""},
		{"its name", "localhost:0", "", ""},
		{"all addresses without a key", "0.0.0.0:0", "", "needs a key: set API_SERVER_KEY"},
		{"no address without a key", ":0", "", "needs a key"},
		{"all addresses with a key", "0.0.0.0:0", "k", ""},
		{"no port", "127.0.0.1", "", "is not an address to listen on (try 127.0.0.1:8642)"},
		{"nonsense", "here", "k", "is not an address"},
		{"a port that is none", "127.0.0.1:99999", "", "is not an address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := gatewaytest.NewHost(t, Platform)
			if c.key != "" {
				h.Secrets[keySecret] = c.key
			}
			opened, err := Open(context.Background(), setup(t, h, gateway.Settings{"listen": c.listen}))
			if opened != nil {
				_ = opened.(*adapter).listener.Close()
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("Open() = %v, want %q", err, c.err)
			}
		})
	}
}

func TestStartRefusesBadSettings(t *testing.T) {
	h := gatewaytest.NewHost(t, Platform)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for want, settings := range map[string]gateway.Settings{
		`unknown field "port"`:      {"port": 1},
		"max_concurrent_runs is 0":  {"max_concurrent_runs": 0},
		"keep_alive must be longer": {"keep_alive": "0s"},
		"set adapters.api.listen":   {"listen": taken.Addr().String()},
		"address already in use":    {"listen": taken.Addr().String()},
		"is not a duration":         {"keep_alive": "long"},
		"settings.allowed_hosts":    {"allowed_hosts": "all"},
	} {
		if _, err := Open(context.Background(), setup(t, h, settings)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%v) = %v, want %q", settings, err, want)
		}
	}
}

func TestWithoutAKeyOnlyTheSameUserComesIn(t *testing.T) {
	s := serveAdapter(t, "", nil)
	s.a.peers = func(net.Addr, net.Addr) error { return errors.New("it comes from user 1234") }
	r := s.ask("x")
	if f := r.failure(t); r.status != 403 || *f.Code != "peer_not_allowed" || !strings.Contains(f.Message, "user 1234") || len(s.h.Turns()) != 0 {
		t.Errorf("%d %+v", r.status, f)
	}
	if r := s.send("GET", "/health", ""); r.status != 200 {
		t.Errorf("health: %d", r.status)
	}
}

func TestPeerIsKnown(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("no %s here: %v", addr, err)
			continue
		}
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := sameUser(served.LocalAddr(), served.RemoteAddr()); err != nil {
			t.Errorf("%s: this very process is refused: %v", addr, err)
		}
		_ = client.Close()
		// Its socket may be around for a while, but no process holds it.
		if err := sameUser(served.LocalAddr(), served.RemoteAddr()); err == nil {
			t.Errorf("%s: a peer that is gone is let in", addr)
		}
		_ = served.Close()
		_ = l.Close()
	}
	other := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:1"))
	if err := sameUser(other, other); err == nil {
		t.Error("a connection that is not there is let in")
	}
}

// Another user of the machine is another user for real, where the test may become one.
func TestPeerOfAnotherUserIsRefused(t *testing.T) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs root and setpriv to become another user")
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	s := serveAdapter(t, "", nil)
	out, err := exec.Command(setpriv, "--reuid=65534", "--clear-groups", curl, "-s", s.url+"/v1/models").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "it comes from user 65534") {
		t.Errorf("as another user: %s, %v", out, err)
	}
	if out, err := exec.Command(curl, "-s", s.url+"/v1/models").CombinedOutput(); err != nil || !strings.Contains(string(out), "hermes-agent") {
		t.Errorf("as the same user: %s, %v", out, err)
	}
}

// dial opens a connection without a client's care for the protocol.
func dial(t *testing.T, s *server) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

func readReply(t *testing.T, conn net.Conn) reply {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func FuzzTableAddr(f *testing.F) {
	f.Add("0100007F:1F90")
	f.Add("00000000000000000000000001000000:1F90")
	f.Fuzz(func(t *testing.T, s string) {
		if a := tableAddr(s); a.IsValid() && !strings.Contains(s, ":") {
			t.Errorf("tableAddr(%q) = %s", s, a)
		}
	})
}

func TestTableAddr(t *testing.T) {
	if !littleEndian {
		t.Skip("the examples are of a little-endian machine")
	}
	for in, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000000000000000000001000000:0050": "[::1]:80",
		"0000000000000000FFFF00000100007F:1F90": "127.0.0.1:8080",
		"":                                      "invalid AddrPort",
		"0100007F":                              "invalid AddrPort",
		"xyz:1F90":                              "invalid AddrPort",
	} {
		if got := fmt.Sprint(tableAddr(in)); got != want {
			t.Errorf("tableAddr(%q) = %s, want %s", in, got, want)
		}
	}
}
