package worker

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func TestAPairOfSocketsIsOneConnection(t *testing.T) {
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	other, err := net.FileConn(theirs)
	_ = theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = other.Write([]byte("hello")); _ = other.Close() }()
	if text, err := io.ReadAll(ours); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestASoleListenerGivesItsConnectionOnce(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _ = b.Close() }()
	l := listenOnce(a)
	if got, err := l.Accept(); err != nil || got != a {
		t.Fatalf("Accept() = %v, %v", got, err)
	}
	_, _ = l.Close(), l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept() after the end = %v", err)
	}
	_ = a.SetDeadline(time.Now()) // it is still open: who took it closes it
	if _, err := a.Write([]byte("x")); errors.Is(err, io.ErrClosedPipe) {
		t.Error("the connection was closed with the listener")
	}
	_ = a.Close()
}

func TestASoleListenerClosesWhatNobodyTook(t *testing.T) {
	a, b := net.Pipe()
	l := listenOnce(a)
	_ = l.Close()
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other end reads %v, want the end", err)
	}
	_ = b.Close()
}

func TestACertificateThatWasNamedBeforeFillsTheHandshake(t *testing.T) {
	for _, c := range []struct{ line, cert, want string }{
		{"1|1|unix|/run/p|grpc|", "AAAA", "1|1|unix|/run/p|grpc|AAAA"},
		{"1|1|unix|/run/p|grpc||true\n", "AAAA", "1|1|unix|/run/p|grpc|AAAA|true"},
		{"1|1|unix|/run/p|grpc|BBBB", "AAAA", "1|1|unix|/run/p|grpc|BBBB"}, // go-plugin's own
		{"1|1|unix|/run/p|grpc|", "", "1|1|unix|/run/p|grpc|"},
		{"1|1|unix|/run/p", "AAAA", "1|1|unix|/run/p"}, // too old for one
	} {
		if got := string(withCertificate([]byte(c.line), []byte(c.cert))); got != c.want {
			t.Errorf("%q with %q = %q, want %q", c.line, c.cert, got, c.want)
		}
	}
}
