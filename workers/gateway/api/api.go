// Package api is the adapter for programs: an HTTP server that speaks the OpenAI chat completions protocol, so that
// any client of that protocol can talk to the agent. It is a pull platform: the answer of a turn is followed and
// returned, nothing is delivered.
//
// Rules:
//   - A request is a message. With an Idempotency-Key the key is its id, so it can be repeated after any failure,
//     also after a restart of everything, and gets the answer of the first one. Without a key the message cannot be
//     asked for again, so a client that goes away ends its turn.
//   - Only local processes of the same user come in without a key; other machines never do.
//   - Text that was streamed is never taken back or repeated, whatever happens to the processes behind it.
package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/net/netutil"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// Platform is the adapter's name in configuration and session keys.
const Platform = "api"

// keySecret is the name in .env of the bearer key.
const keySecret = "API_SERVER_KEY"

const (
	headerTimeout = 10 * time.Second // a client that sends its header slower than this is none
	bodyTimeout   = time.Minute      // 10 MB over a slow line
	idleTimeout   = 2 * time.Minute  // kept-alive connections without a request
	writeTimeout  = 30 * time.Second // a reader that takes nothing for so long is gone
	maxHeader     = 64 << 10
	// maxConnections bounds descriptors: far above what max_concurrent_runs can use, far below the limit of 4096.
	maxConnections = 256
)

// settings are the keys of adapters.api.
type settings struct {
	Listen         string           `json:"listen"`
	MaxRuns        int              `json:"max_concurrent_runs"` // chat completions at once; more are told to wait
	KeepAlive      gateway.Duration `json:"keep_alive"`          // between comments on a silent stream
	AllowedHosts   []string         `json:"allowed_hosts"`       // Host headers besides loopback names, for a proxy in front
	AllowedOrigins []string         `json:"allowed_origins"`     // web pages that may use it; none by default
}

func defaults() settings {
	return settings{Listen: "127.0.0.1:8642", MaxRuns: 10, KeepAlive: gateway.Duration(30 * time.Second)}
}

// An adapter is one server.
type adapter struct {
	settings settings
	services *gateway.Services
	log      hclog.Logger
	listener net.Listener
	loopback bool
	key      *[sha256.Size]byte // nil: none is set
	server   *http.Server
	started  time.Time
	runs     chan struct{} // one token for each running completion
	peers    peerCheck

	serving  atomic.Bool
	draining atomic.Bool
	changed  gateway.Bell    // of either
	stopping context.Context // ends with Run; tells a stop from a client that went away
	mu       sync.Mutex
	last     time.Time // end of the last request
}

var (
	_ gateway.Adapter = (*adapter)(nil)
	_ gateway.Drainer = (*adapter)(nil)
	_ gateway.Teller  = (*adapter)(nil)
)

// Open checks the settings and binds the address, so that a start fails where it cannot serve.
func Open(ctx context.Context, s gateway.Setup) (gateway.Adapter, error) {
	c := defaults()
	if err := s.Settings.Decode(&c); err != nil {
		return nil, err
	}
	if c.MaxRuns < 1 {
		return nil, fmt.Errorf("settings: max_concurrent_runs is %d, it must be at least 1", c.MaxRuns)
	}
	if c.KeepAlive <= 0 {
		return nil, errors.New("settings: keep_alive must be longer than 0")
	}
	key, err := s.Services.Secret(ctx, keySecret)
	if err != nil {
		return nil, err
	}
	a := &adapter{
		settings: c, services: s.Services, log: s.Log, started: time.Now(),
		runs: make(chan struct{}, c.MaxRuns), peers: sameUser, changed: gateway.NewBell(),
	}
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		a.key = &sum
	}
	if err := a.listen(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *adapter) listen(ctx context.Context) error {
	addr, err := net.ResolveTCPAddr("tcp", a.settings.Listen)
	if err != nil {
		return fmt.Errorf("settings: listen: %q is not an address to listen on (try %s): %w", a.settings.Listen, defaults().Listen, err)
	}
	a.loopback = addr.IP.IsLoopback()
	if !a.loopback && a.key == nil {
		return fmt.Errorf("listen on %s: other machines can reach it, which needs a key: set %s in .env, or set adapters.api.listen to %s",
			a.settings.Listen, keySecret, defaults().Listen)
	}
	var lc net.ListenConfig
	a.listener, err = lc.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return fmt.Errorf("listen on %s: %w; if another program or another home uses it, set adapters.api.listen", a.settings.Listen, err)
	}
	a.log.Info("listening", "address", a.listener.Addr().String(), "key", a.key != nil)
	return nil
}

// Run serves until ctx ends.
func (a *adapter) Run(ctx context.Context) error {
	a.stopping = ctx
	a.server = a.newServer(ctx)
	a.serve(true)
	defer a.serve(false)
	ended := make(chan struct{})
	closer := make(chan struct{})
	go func() {
		defer close(closer)
		select {
		case <-ctx.Done():
			// Handlers see ctx end and say goodbye on their streams; Close cuts those that do not get to it.
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
			defer cancel()
			_ = a.server.Shutdown(grace) // its error is that the time was up
			_ = a.server.Close()         // the listener is closed by now
		case <-ended:
		}
	}()
	err := a.server.Serve(netutil.LimitListener(a.listener, maxConnections))
	if errors.Is(err, http.ErrServerClosed) {
		<-ctx.Done() // a drain closes the way in, the end comes later
		err = nil
	}
	close(ended)
	<-closer
	return err
}

// goodbye is how long handlers have to end their answers when the process must go; the frame has half a second.
const goodbye = 300 * time.Millisecond

func (a *adapter) newServer(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           a.handler(),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       a.withPeer,
		ErrorLog:          a.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}

func (a *adapter) serve(now bool) {
	a.serving.Store(now)
	a.changed.Ring()
}

// Changed rings when the server begins or ends to serve.
func (a *adapter) Changed() gateway.Bell { return a.changed }

// Status is connected while the server serves. There is no account that could be lost.
func (a *adapter) Status() gateway.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := gateway.Status{State: gateway.StateConnected, LastReceive: a.last, Detail: "listening on " + a.listener.Addr().String()}
	switch {
	case a.draining.Load():
		s.Detail = "stopping, no new requests"
	case !a.serving.Load():
		s.State = gateway.StateConnecting
	}
	return s
}

// received notes a request that was answered.
func (a *adapter) received() {
	a.mu.Lock()
	a.last = time.Now()
	a.mu.Unlock()
	a.services.Received()
}

// Drain closes the way in and waits for running requests. Those are counted by the frame.
func (a *adapter) Drain(ctx context.Context) int {
	a.draining.Store(true)
	a.changed.Ring()
	if a.serving.Load() {
		_ = a.server.Shutdown(ctx) // its error is that the time was up
	}
	return 0
}
