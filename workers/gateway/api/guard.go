package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// guard decides who may come in, before anything of a request is looked at but its header. It returns nil for
// those who may.
func (a *adapter) guard(r *http.Request) *failure {
	if f := a.checkHost(r); f != nil {
		return f
	}
	if origin := r.Header.Get("Origin"); origin != "" && !slices.Contains(a.settings.AllowedOrigins, origin) {
		return fail(http.StatusForbidden, typePermission, "origin_not_allowed",
			"Web pages of %s may not use this server. A page is allowed by naming its origin in adapters.api.allowed_origins.", origin)
	}
	return nil
}

// checkHost refuses names that a page of a stranger could have pointed at this machine. On an address that other
// machines reach, any name may be right and the key is what counts.
func (a *adapter) checkHost(r *http.Request) *failure {
	if !a.loopback {
		return nil
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || slices.ContainsFunc(a.settings.AllowedHosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return fail(http.StatusForbidden, typePermission, "host_not_allowed",
		"This server does not answer to the name %q. If a proxy in front of it uses that name, add it to adapters.api.allowed_hosts.", host)
}

// authorise asks for the key, or without one for a process of the same user.
func (a *adapter) authorise(r *http.Request) *failure {
	if a.key == nil {
		check, ok := r.Context().Value(peerKey{}).(func() error)
		if !ok {
			check = func() error { return errors.New("it was not looked at") }
		}
		if err := check(); err != nil {
			return fail(http.StatusForbidden, typePermission, "peer_not_allowed",
				"Without a key only processes of the user who runs the agent may use it, and this connection is not known to be one: %s. Set %s in .env and send it as a bearer token.", err, keySecret)
		}
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], a.key[:]) == 1 {
		return nil
	}
	f := fail(http.StatusUnauthorized, typeAuth, "invalid_api_key", "The bearer token is wrong. It is the value of %s in the agent's .env.", keySecret)
	if token == "" {
		f.Message = fmt.Sprintf("A key is needed: send the value of %s as \"Authorization: Bearer KEY\".", keySecret)
	}
	return f
}

// peerKey is where the context of a connection holds a func() error: why its peer may not come in without a key.
type peerKey struct{}

// A peerCheck says whether the other end of a local connection belongs to this user.
type peerCheck func(local, remote net.Addr) error

// withPeer prepares the check of a connection. It is made at the first request, in that request's own goroutine.
func (a *adapter) withPeer(ctx context.Context, c net.Conn) context.Context {
	if a.key != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, sync.OnceValue(func() error {
		err := a.peers(c.LocalAddr(), c.RemoteAddr())
		if err != nil {
			a.log.Warn("connection refused", "from", c.RemoteAddr().String(), "error", err)
		}
		return err
	}))
}

// allowOrigin lets a page that the settings name read the answers.
func (a *adapter) allowOrigin(w http.ResponseWriter, r *http.Request) {
	if len(a.settings.AllowedOrigins) == 0 {
		return
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if origin := r.Header.Get("Origin"); origin != "" {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", sessionHeader+", Retry-After")
	}
}

// preflight answers a browser's question for an allowed page, and says whether the request was one.
func preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Origin") == "" || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, "+idempotencyHeader+", "+sessionHeader+", "+progressHeader)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
