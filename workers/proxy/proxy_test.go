package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// secrets stands for the supervisor's answers.
type secrets map[string]string

func (s secrets) Secret(_ context.Context, r *hostv1.SecretRequest, _ ...grpc.CallOption) (*hostv1.SecretResponse, error) {
	switch v, ok := s[r.Name]; {
	case v == "down":
		return nil, ipc.ErrBusy
	case !ok:
		return nil, fmt.Errorf("secret %s: %w", r.Name, ipc.ErrNotFound)
	default:
		return &hostv1.SecretResponse{Value: v}, nil
	}
}

func TestOnlyWhatIsSetIsKept(t *testing.T) {
	v, err := Ask(t.Context(), secrets{"ALL_PROXY": "socks5://p:1"}, []string{"ALL_PROXY", "HTTP_PROXY"})
	if err != nil || len(v) != 1 {
		t.Errorf("%v, %v", v, err)
	}
	if value, name := v.First("TELEGRAM_PROXY", "ALL_PROXY"); value != "socks5://p:1" || name != "ALL_PROXY" {
		t.Errorf("%s %s", value, name)
	}
}

func TestASupervisorThatDoesNotAnswerIsAnError(t *testing.T) {
	if _, err := Ask(t.Context(), secrets{"ALL_PROXY": "down"}, []string{"ALL_PROXY"}); !errors.Is(err, ipc.ErrBusy) {
		t.Errorf("%v", err)
	}
}

func TestTheProxyOfARequest(t *testing.T) {
	for _, c := range []struct {
		name string
		vars Variables
		to   string
		want string
	}{
		{"none", nil, "https://example.org", ""},
		{"by scheme", Variables{"HTTPS_PROXY": "http://s:1", "http_proxy": "http://h:1"}, "https://example.org", "http://s:1"},
		{"by scheme, small", Variables{"HTTPS_PROXY": "http://s:1", "http_proxy": "http://h:1"}, "http://example.org", "http://h:1"},
		{"for everything", Variables{"ALL_PROXY": "socks5h://u:p@a:1"}, "https://example.org", "socks5h://u:p@a:1"},
		{"its own before that for everything", Variables{"ALL_PROXY": "socks5://a:1", "HTTPS_PROXY": "http://s:1"}, "https://example.org", "http://s:1"},
		{"an exception", Variables{"ALL_PROXY": "socks5://a:1", "NO_PROXY": "example.org"}, "https://api.example.org", ""},
		{"not to this machine", Variables{"ALL_PROXY": "socks5://a:1"}, "http://127.0.0.1:11434/v1", ""},
	} {
		r, _ := http.NewRequest(http.MethodGet, c.to, nil)
		u, err := c.vars.ForRequest()(r)
		got := ""
		if u != nil {
			got = u.String()
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestAnUnreadableProxyIsNotPrinted(t *testing.T) {
	r, _ := http.NewRequest(http.MethodGet, "https://example.org", nil)
	_, err := Variables{"HTTPS_PROXY": "http://ann:sesame@[::1"}.ForRequest()(r)
	if err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%v", err)
	}
}
