// Package proxy finds the proxies that lead a worker out of a closed network. They may have a password, so a worker asks the
// supervisor for them as for any secret, and does not find them in its environment.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// Variables holds the values of HTTP_PROXY and its kin by name.
type Variables map[string]string

// Ask asks the supervisor for the variables that a worker's configuration names. One that is not set any more is left out.
func Ask(ctx context.Context, config hostv1.ConfigClient, names []string) (Variables, error) {
	v := Variables{}
	for _, name := range names {
		r, err := config.Secret(ctx, &hostv1.SecretRequest{Name: name})
		if errors.Is(err, ipc.ErrNotFound) || errors.Is(err, ipc.ErrDenied) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ask for %s: %w", name, err)
		}
		v[name] = r.Value
	}
	return v, nil
}

// First returns the value of the first name that is set, and the name.
func (v Variables) First(names ...string) (value, name string) {
	for _, name := range names {
		if v[name] != "" {
			return v[name], name
		}
	}
	return "", ""
}

// ForRequest returns what net/http.Transport wants: HTTPS_PROXY and HTTP_PROXY by the address's scheme, else ALL_PROXY, each
// in capitals or not, and none for what NO_PROXY names or this machine.
func (v Variables) ForRequest() func(*http.Request) (*url.URL, error) {
	first := func(names ...string) string { value, _ := v.First(names...); return value }
	c := httpproxy.Config{
		HTTPProxy:  first("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"),
		HTTPSProxy: first("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"),
		NoProxy:    first("NO_PROXY", "no_proxy"),
	}
	for _, raw := range []string{c.HTTPProxy, c.HTTPSProxy} {
		if !isAddress(raw) {
			// To go past a proxy that is meant would be a leak, and the value may hold a password.
			return func(*http.Request) (*url.URL, error) {
				return nil, errors.New("the proxy that .env or the environment names is not a URL such as http://host:3128")
			}
		}
	}
	find := c.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return find(r.URL) }
}

// isAddress says whether httpproxy can read a value: it takes what it cannot read for no proxy.
func isAddress(raw string) bool {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	_, err := url.Parse(raw)
	return err == nil
}
