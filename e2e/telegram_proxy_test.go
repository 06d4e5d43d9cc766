package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// The address of the Bot API leads nowhere from here: only the proxy that .env names knows the way.
func TestTheProxyOfEnvLeadsToTelegram(t *testing.T) {
	tg := newTelegram(t, "", quickRestarts)
	var through atomic.Int64
	target, config := &url.URL{Scheme: "http"}, tg.read("config.yaml")
	_, rest, _ := strings.Cut(config, `base_url: "http://`)
	target.Host, _, _ = strings.Cut(rest, `"`)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		through.Add(1)
		r.SetURL(target)
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := credentials(r); !ok || user != "ann" || password != "open-sesame" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { tg.kill(); proxy.CloseClientConnections(); proxy.Close() })
	tg.write("config.yaml", strings.ReplaceAll(config, "http://"+target.Host, "http://api.telegram.invalid"))
	tg.write(".env", "TELEGRAM_BOT_TOKEN="+bottest.Token+"\nTELEGRAM_PROXY=http://ann:open-sesame@"+strings.TrimPrefix(proxy.URL, "http://")+"\n")
	tg.start()
	tg.say("through the proxy")
	tg.shows("“through the proxy”")
	if through.Load() == 0 {
		t.Error("nothing went through the proxy")
	}
	for _, secret := range []string{"open-sesame", strings.Split(bottest.Token, ":")[1]} {
		if strings.Contains(tg.out.String(), secret) {
			t.Errorf("a log has %q", secret)
		}
		status, err := tg.status()
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range status.Workers {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.Pid))
			if err != nil || strings.Contains(string(env), secret) {
				t.Errorf("the environment of %s has %q, or %v", w.Name, secret, err)
			}
		}
	}
}

// credentials reads how a client names itself to a proxy.
func credentials(r *http.Request) (user, password string, ok bool) {
	as := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	return as.BasicAuth()
}
