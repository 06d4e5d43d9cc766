package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// A provider is a model server that answers at once, so that what a turn takes beside it is ours. A message that
// begins with "tool:" gets a read_file call for the rest as its first answer.
type provider struct {
	listener net.Listener
	server   *http.Server
	spent    atomic.Int64 // nanoseconds in its own handlers
}

func newProvider() (*provider, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{listener: l}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.complete)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

func (p *provider) url() string { return "http://" + p.listener.Addr().String() + "/v1" }

func (p *provider) close() { _ = p.server.Close() }

type completionRequest struct {
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	} `json:"messages"`
}

func (p *provider) complete(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	defer func() { p.spent.Add(int64(time.Since(start))) }()
	var req completionRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Messages) == 0 {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	last := req.Messages[len(req.Messages)-1]
	text := fmt.Sprint(last.Content)
	path, wantsTool := strings.CutPrefix(text, "tool:")
	if last.Role == "user" && wantsTool {
		args, _ := json.Marshal(map[string]string{"path": path})
		call := map[string]any{"index": 0, "id": "call_1", "type": "function", "function": map[string]string{"name": "read_file", "arguments": string(args)}}
		p.send(w, map[string]any{"role": "assistant", "tool_calls": []any{call}}, nil)
		p.send(w, map[string]any{}, "tool_calls")
	} else {
		for _, piece := range []string{"It ", "is ", "done."} {
			p.send(w, map[string]any{"content": piece}, nil)
		}
		p.send(w, map[string]any{}, "stop")
	}
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}

func (p *provider) send(w http.ResponseWriter, delta map[string]any, finish any) {
	chunk := map[string]any{
		"id": "bench", "object": "chat.completion.chunk", "created": 1, "model": "bench",
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
	}
	b, _ := json.Marshal(chunk)
	_, _ = fmt.Fprintf(w, "data: %s\n\n", b)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}
