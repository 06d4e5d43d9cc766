// Package openai talks to any server with the OpenAI chat completions interface: OpenAI, OpenRouter, Ollama,
// llama.cpp, vLLM and others.
//
// Rules: what such servers do differently (missing ids and indices, arguments as objects, errors inside a stream,
// no final marker, JSON instead of a stream) is put right here and nowhere else; a stream is complete only if it
// said so; a call ends by itself when the server falls silent; the key is asked for at each call, so a changed one
// needs no restart, and is in no error text.
package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

// The time limits. They are per call and measured by the monotonic clock, so sleep of the machine does not count.
const (
	connectTimeout = 30 * time.Second // a packet filter that drops packets would hold us for minutes
	hostedIdle     = 120 * time.Second
	// A local server reads a long prompt for minutes before its first byte, on a machine that we can see is up.
	localIdle = 30 * time.Minute
	// Keep-alive comments are bytes but no answer: a server that sends nothing else for so long is stuck.
	stallFactor = 3
	// A call that is still streaming after this is a loop of the model.
	callTimeout = 30 * time.Minute
	// Idle connections are worth a TLS handshake; longer ones are mostly dead when they are used again.
	keepAlive = 90 * time.Second
)

// Config says where a server is and how to talk to it.
type Config struct {
	BaseURL string // up to and including /v1
	// Key returns the key, empty for a server that wants none. It is asked at every call.
	Key func(context.Context) (string, error)
	// Proxy says through which proxy a request goes, as in http.Transport; nil for none.
	Proxy func(*http.Request) (*url.URL, error)
	// Idle is how long a server may be silent; 0 means 120 s, and 30 min for one on this machine or network.
	Idle time.Duration
}

// A Provider is a client of one server.
type Provider struct {
	base     string // for calls
	endpoint string // for people
	key      func(context.Context) (string, error)
	idle     time.Duration
	http     *http.Client
	// noUsage is set when the server has refused stream_options once.
	noUsage atomic.Bool
}

var _ provider.Provider = (*Provider)(nil)

// New returns a client. It makes no connection.
func New(c Config) (*Provider, error) {
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("model.base_url %q is not an http address (like http://127.0.0.1:11434/v1)", redactURL(c.BaseURL))
	}
	p := &Provider{base: strings.TrimRight(c.BaseURL, "/"), endpoint: endpointOf(u), key: c.Key, idle: c.Idle}
	if p.idle <= 0 {
		p.idle = hostedIdle
		if local(u.Hostname()) {
			p.idle = localIdle
		}
	}
	p.http = &http.Client{Transport: &transport{next: &http.Transport{
		Proxy:                 c.Proxy,
		DialContext:           (&net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   connectTimeout,
		ExpectContinueTimeout: time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       keepAlive,
	}}}
	return p, nil
}

// Name returns "openai".
func (*Provider) Name() string { return "openai" }

// Endpoint returns the base URL without user, password and query.
func (p *Provider) Endpoint() string { return p.endpoint }

// Close closes idle connections.
func (p *Provider) Close() { p.http.CloseIdleConnections() }

// Stream makes one call.
func (p *Provider) Stream(ctx context.Context, req provider.Request, emit func(provider.Delta)) (provider.Reply, error) {
	var key string
	if p.key != nil {
		var err error
		if key, err = p.key(ctx); err != nil {
			return provider.Reply{}, err
		}
	}
	c := startCall(ctx, p.idle)
	defer c.end()
	acc := newAccumulator(emit)
	err := p.stream(c, key, req, acc)
	return acc.reply(), p.failure(c, key, err)
}

func (p *Provider) stream(c *call, key string, req provider.Request, acc *accumulator) error {
	cfg := sdk.DefaultConfig(key)
	cfg.BaseURL, cfg.HTTPClient = p.base, p.http
	// Lines that are no data never reach the library (see events), so this only bounds blank ones.
	cfg.EmptyMessagesLimit = 1 << 20
	client := sdk.NewClientWithConfig(cfg)
	body := request(req, !p.noUsage.Load())
	stream, err := client.CreateChatCompletionStream(c.ctx, body)
	if err != nil && body.StreamOptions != nil && refusesUsage(err) {
		p.noUsage.Store(true)
		body.StreamOptions = nil
		stream, err = client.CreateChatCompletionStream(c.ctx, body)
	}
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for {
		line, err := stream.RecvRaw()
		switch {
		case errors.Is(err, io.EOF):
			return p.complete(c, acc)
		case err != nil:
			return err
		}
		c.progressed()
		if err := acc.add(line); err != nil {
			return err
		}
	}
}

// complete judges a stream that ended without an error: by its own word, or by being cut.
func (p *Provider) complete(c *call, acc *accumulator) error {
	switch {
	case acc.finish == "error":
		return &provider.Error{Class: provider.Server, Message: "the provider ended its answer with an error"}
	case acc.chunks == 0:
		return notAStream(c)
	case acc.finish != "" || c.sawDone():
		acc.flush()
		return nil
	}
	return &provider.Error{Class: provider.CutStream, Message: "the connection ended in the middle of the answer"}
}

// refusesUsage recognises servers that do not know stream_options.
func refusesUsage(err error) bool {
	status, message := statusOf(err)
	return (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity) &&
		strings.Contains(message, "stream_options")
}

func endpointOf(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}).String()
}

// redactURL hides a password in what may not even be a URL.
func redactURL(raw string) string {
	if at := strings.LastIndex(raw, "@"); at >= 0 {
		return "…" + raw[at:]
	}
	return raw
}

// local says whether a host is on this machine or its private network.
func local(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".local") || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast())
}
