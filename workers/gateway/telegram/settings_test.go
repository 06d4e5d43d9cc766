package telegram

import (
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/proxy"
)

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		set  gateway.Settings
		want string // of the error, "" for none
	}{
		{gateway.Settings{}, ""},
		{gateway.Settings{"base_url": "http://127.0.0.1:8081", "poll_timeout": 10, "edit_interval": "1s"}, ""},
		{gateway.Settings{"base_url": "api.telegram.org"}, "base_url"},
		{gateway.Settings{"base_url": "ftp://x"}, "base_url"},
		{gateway.Settings{"poll_timeout": "5m"}, "poll_timeout"},
		{gateway.Settings{"poll_timeout": "soon"}, "soon"},
		{gateway.Settings{"messages_per_second": 0}, "messages_per_second"},
		{gateway.Settings{"edit_interval": "-1s"}, "edit_interval"},
		{gateway.Settings{"strangers": "shout"}, "strangers"},
		{gateway.Settings{"reply": "always"}, "reply"},
		{gateway.Settings{"busy": "panic"}, "busy"},
		{gateway.Settings{"home_chat": "@home"}, "home_chat"},
		{gateway.Settings{"retry_first": "10m"}, "retry_first"},
		{gateway.Settings{"allowed_users": true}, "list of ids"},
		{gateway.Settings{"alowed_users": "1"}, "alowed_users"},
	} {
		_, err := readSettings(c.set)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.set, err, c.want)
		}
	}
}

func TestListsAreWrittenInSeveralWays(t *testing.T) {
	for _, v := range []any{"1, @b\n-100123", []any{1, "@b", -100123}, []any{"1 @b", -100123.0}} {
		s, err := readSettings(gateway.Settings{"allowed_users": v})
		if err != nil || strings.Join(s.AllowedUsers, "|") != "1|@b|-100123" {
			t.Errorf("%v is read as %q, %v", v, s.AllowedUsers, err)
		}
	}
}

func TestTheProxyIsFound(t *testing.T) {
	for _, c := range []struct {
		name      string
		set, base string
		env       proxy.Variables
		want, err string
	}{
		{name: "none"},
		{name: "from the settings", set: "socks5://h:1080", env: proxy.Variables{"ALL_PROXY": "http://x:1"}, want: "socks5://h:1080"},
		{name: "from the environment", env: proxy.Variables{"TELEGRAM_PROXY": "http://p:3128", "ALL_PROXY": "http://x:1"}, want: "http://p:3128"},
		{name: "for everything", env: proxy.Variables{"ALL_PROXY": "socks5h://x:1"}, want: "socks5h://x:1"},
		{name: "but not to this machine", base: "http://127.0.0.1:8081", env: proxy.Variables{"ALL_PROXY": "socks5h://x:1"}},
		{name: "unknown scheme", set: "gopher://h:70", err: "gopher"},
		{name: "no URL", set: "me:secretpassword@h", err: "not a URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := defaults()
			s.Proxy = c.set
			if c.base != "" {
				s.BaseURL = c.base
			}
			u, err := s.proxyURL(c.env)
			if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secretpassword")) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if got := ""; err == nil {
				if u != nil {
					got = u.String()
				}
				if got != c.want {
					t.Errorf("proxy %q, want %q", got, c.want)
				}
			}
		})
	}
}

func TestWithoutATokenTheStartSaysWhatToDo(t *testing.T) {
	_, err := open(t.Context(), gateway.Setup{Settings: gateway.Settings{}}, parts{host: newSupervisor()})
	if err == nil || !strings.Contains(err.Error(), tokenName) || !strings.Contains(err.Error(), ".env") {
		t.Errorf("%v", err)
	}
}

func TestWaitsGrowToTheirLimit(t *testing.T) {
	for _, c := range []struct {
		failures int
		want     time.Duration
	}{{1, time.Second}, {2, 2 * time.Second}, {9, 256 * time.Second}, {10, 5 * time.Minute}, {1 << 30, 5 * time.Minute}} {
		for range 100 {
			if d := grow(time.Second, c.failures, 5*time.Minute); d > c.want || d < c.want*4/5 {
				t.Fatalf("after %d failures %s, want at most %s", c.failures, d, c.want)
			}
		}
	}
}
