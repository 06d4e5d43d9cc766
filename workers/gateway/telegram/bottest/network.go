package bottest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Listen serves on a loopback port and returns the base URL.
func (s *Server) Listen() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s.serve(l)
	return "http://" + l.Addr().String()
}

// PipeURL is the base URL to use with the dialer of Pipe.
const PipeURL = "http://botapi.test"

// Pipe serves on connections in memory and returns how to dial one. Reading and writing them is durably blocking,
// so time passes in a synctest bubble. The bubble must call Close.
func (s *Server) Pipe() func(ctx context.Context, network, addr string) (net.Conn, error) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	s.serve(l)
	return l.dial
}

func (s *Server) serve(l net.Listener) {
	l = &droppingListener{Listener: l, s: s}
	srv := &http.Server{Handler: s, ConnState: s.connState, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with Close
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shutdown = append(s.shutdown, func() {
		_ = srv.Close()
		<-done
	})
}

func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.accepted++
		s.open[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.open, c)
	}
}

// Connections returns how many connections are open and how many were made in all.
func (s *Server) Connections() (open, made int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.accepted
}

// Drop closes the next n connections as soon as they are made, and returns when that is done or ctx ends.
func (s *Server) Drop(ctx context.Context, n int) error {
	s.mu.Lock()
	s.drop, s.dropped = n, make(chan struct{})
	done := s.dropped
	s.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dropNext reports whether the connection that was just made is to be closed.
func (s *Server) dropNext() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop == 0 {
		return false
	}
	if s.drop--; s.drop == 0 {
		close(s.dropped)
	}
	return true
}

type droppingListener struct {
	net.Listener
	s *Server
}

func (l *droppingListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || !l.s.dropNext() {
			return c, err
		}
		_ = c.Close()
	}
}

// Cut closes every open connection, as a router that restarts does.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Close()
	}
}

// Close ends the server.
func (s *Server) Close() {
	s.mu.Lock()
	list := s.shutdown
	s.shutdown = nil
	s.mu.Unlock()
	for _, f := range list {
		f()
	}
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
