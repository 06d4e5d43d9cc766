package telegram

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// A brokenPath is a way to the server that fails.
type brokenPath struct {
	name string
	url  func(t *testing.T) string
	set  map[string]any
}

// echo says back what it was asked, as many proxies do.
func echo(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<p>cannot get %s</p>", r.URL)
	})
}

func brokenPaths() []brokenPath {
	redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.invalid"+r.URL.Path, http.StatusFound)
	})
	refusal := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		fmt.Fprintf(w, `{"ok":false,"error_code":400,"description":"Bad Request: no such url"}`)
	})
	return []brokenPath{
		{name: "nobody listens", url: func(*testing.T) string { return "http://127.0.0.1:1" }},
		{name: "the name does not resolve", url: func(*testing.T) string { return "http://api.telegram.invalid" }},
		{name: "no TLS there", url: func(t *testing.T) string { return strings.Replace(serve(t, refusal), "http:", "https:", 1) }},
		{name: "a certificate that nobody knows", url: func(t *testing.T) string {
			s := httptest.NewUnstartedServer(refusal)
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			t.Cleanup(s.Close)
			return s.URL
		}},
		{name: "a page with the address", url: func(t *testing.T) string { return serve(t, echo(200)) }},
		{name: "a page of a bad gateway", url: func(t *testing.T) string { return serve(t, echo(502)) }},
		{name: "a redirect", url: func(t *testing.T) string { return serve(t, redirect) }},
		{name: "a refusal", url: func(t *testing.T) string { return serve(t, refusal) }},
		{name: "connections are cut", url: func(t *testing.T) string {
			b := bottest.New()
			b.Fail(bottest.Fault{Kind: bottest.CutBefore})
			t.Cleanup(b.Close)
			return b.Listen()
		}},
		{name: "a proxy that is away", url: func(*testing.T) string { return "http://api.telegram.invalid" }, set: map[string]any{"proxy": "http://me:proxypassword@127.0.0.1:1"}},
		{name: "a proxy that refuses", url: func(*testing.T) string { return "https://api.telegram.invalid" }, set: map[string]any{"proxy": "?"}},
		{name: "a SOCKS proxy that is away", url: func(*testing.T) string { return "http://api.telegram.invalid" }, set: map[string]any{"proxy": "socks5://me:proxypassword@127.0.0.1:1"}},
	}
}

// P12: the token is in no log, no state, no event and no outcome of a delivery, whatever goes wrong.
func TestTheTokenAppearsNowhere(t *testing.T) {
	for _, p := range brokenPaths() {
		t.Run(p.name, func(t *testing.T) {
			all := p.everythingSaid(t)
			_, secret, _ := strings.Cut(bottest.Token, ":")
			for _, s := range []string{bottest.Token, secret, url.PathEscape(bottest.Token), "proxypassword"} {
				if strings.Contains(all, s) {
					t.Errorf("%q appears in\n%s", s, all)
				}
			}
			if !strings.Contains(all, "a poll failed") {
				t.Errorf("nothing was said of the failure, so nothing is tested: %s", all)
			}
		})
	}
}

// everythingSaid runs an adapter until three polls have failed and a delivery too.
func (p brokenPath) everythingSaid(t *testing.T) string {
	t.Helper()
	set := gateway.Settings{"base_url": p.url(t), "lock_dir": t.TempDir(), "retry_first": "1ms", "retry_longest": "2ms"}
	for k, v := range p.set {
		set[k] = v
	}
	if set["proxy"] == "?" {
		set["proxy"] = strings.Replace(serve(t, echo(407)), "//", "//me:proxypassword@", 1)
	}
	logs, host := &logBuffer{}, newSupervisor()
	setup := gateway.Setup{Platform: Platform, Settings: set, Dir: t.TempDir(), Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: logs})}
	a, err := open(t.Context(), setup, parts{host: host, token: bottest.Token, users: list{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	var told []string
	for !strings.Contains(a.Status().Detail, "3 in a row") && ctx.Err() == nil {
		told = append(told, a.Status().Detail)
		time.Sleep(time.Millisecond)
	}
	told = append(told, a.Status().Detail)
	out := a.Deliver(ctx, gateway.Delivery{ID: 1, To: to(ann), Text: "x", Attempt: 1})
	told = append(told, out.Detail, fmt.Sprintf("%+v", out), logs.String(), host.timeline())
	cancel()
	<-done
	if out.Detail == "" {
		t.Error("the delivery says nothing of its failure")
	}
	return strings.Join(append(told, logs.String()), "\n")
}

func serve(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	asked := make(chan string, 8)
	other := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	first := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	c := newClient(first, bottest.Token, route{}, nil)
	defer c.closeIdle()
	if err := c.call(t.Context(), "getMe", nil, nil); err == nil {
		t.Error("a redirect is no answer of the API")
	}
	if len(asked) > 0 {
		t.Errorf("the token was carried to another server: %s", <-asked)
	}
}

func TestProxiesAreUsed(t *testing.T) {
	for _, scheme := range []string{"http", "socks5", "socks5h"} {
		t.Run(scheme, func(t *testing.T) {
			b := bottest.New()
			base := b.Listen()
			defer b.Close()
			target := strings.TrimPrefix(base, "http://")
			var proxy string
			if scheme == "http" {
				proxy = forwardProxy(t, target)
			} else {
				proxy = socksProxy(t, target)
			}
			set := settings{BaseURL: "http://api.telegram.invalid", Proxy: scheme + "://" + proxy}
			via, err := set.route(nil)
			if err != nil {
				t.Fatal(err)
			}
			c := newClient(set.BaseURL, bottest.Token, via, nil)
			defer c.closeIdle()
			var me account
			if err := c.call(t.Context(), "getMe", nil, &me); err != nil || me.ID != bottest.BotID {
				t.Errorf("through the proxy: %+v %v", me, err)
			}
		})
	}
}

// forwardProxy is an HTTP proxy that leads everything to one server.
func forwardProxy(t *testing.T, target string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequest(r.Method, "http://"+target+r.URL.Path, r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header = r.Header
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = copyAll(w, resp.Body)
	}))
	t.Cleanup(func() { s.Close(); http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
	return strings.TrimPrefix(s.URL, "http://")
}

// socksProxy is a SOCKS5 proxy (RFC 1928) without authentication that leads everything to one server.
func socksProxy(t *testing.T, target string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		greeting := make([]byte, 3) // version 5, one method: none
		request := make([]byte, 5)  // version, connect, reserved, name, its length
		if readFull(c, greeting) != nil || writeAll(c, 5, 0) != nil || readFull(c, request) != nil {
			return
		}
		if readFull(c, make([]byte, int(request[4])+2)) != nil {
			return
		}
		out, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer out.Close()
		if writeAll(c, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0) != nil {
			return
		}
		back := make(chan struct{})
		go func() { defer close(back); _, _ = copyAll(c, out); _ = c.Close() }()
		_, _ = copyAll(out, c)
		_ = out.Close()
		<-back
	}()
	return l.Addr().String()
}

func copyAll(w io.Writer, r io.Reader) (int64, error) { return io.Copy(w, r) }

func readFull(r io.Reader, b []byte) error { _, err := io.ReadFull(r, b); return err }

func writeAll(w io.Writer, b ...byte) error { _, err := w.Write(b); return err }
