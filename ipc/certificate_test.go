package ipc

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net"
	"testing"
)

func TestACertificateIsNamedByALine(t *testing.T) {
	c, err := NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	named, ok := CutCertificate([]byte(CertificateLine(c) + "\n"))
	if !ok {
		t.Fatal("the line is not recognised")
	}
	der, err := base64.RawStdEncoding.DecodeString(string(named))
	if err != nil || string(der) != string(c.Certificate[0]) {
		t.Errorf("another certificate is named: %v", err)
	}
	for _, line := range []string{"", "certificate", "1|1|unix|/run/plugin1|grpc|", "Certificate|x"} {
		if _, ok := CutCertificate([]byte(line)); ok {
			t.Errorf("%q is taken for a certificate", line)
		}
	}
}

// Both sides have a certificate of their own making and trust that of the other, as go-plugin joins them.
func TestOnlyTheTwoThatKnowEachOtherAreConnected(t *testing.T) {
	server, client, stranger := certificate(t), certificate(t), certificate(t)
	for name, c := range map[string]struct {
		shows tls.Certificate
		fails bool
	}{"the other": {shows: client}, "a stranger": {shows: stranger, fails: true}} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			defer func() { _, _ = a.Close(), b.Close() }()
			served := make(chan error, 1)
			go func() {
				served <- tls.Server(a, &tls.Config{
					Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(t, client),
				}).Handshake()
				_ = a.Close()
			}()
			conn := tls.Client(b, &tls.Config{Certificates: []tls.Certificate{c.shows}, RootCAs: pool(t, server), ServerName: "localhost"})
			err := conn.Handshake()
			if err == nil {
				_, err = conn.Read(make([]byte, 1)) // what the server thinks of the client comes after the handshake
			}
			if got := <-served; (got != nil) != c.fails {
				t.Errorf("server: %v, client: %v", got, err)
			}
		})
	}
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	c, err := NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pool(t *testing.T, c tls.Certificate) *x509.CertPool {
	t.Helper()
	parsed, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AddCert(parsed)
	return p
}
