package workers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// serverTLS makes the certificate of this process and names it on stdout, in place of go-plugin, whose own takes a third of a
// start. It is nil where go-plugin is to do it: for another host than the supervisor, which knows no line before the handshake.
func serverTLS() (*tls.Config, error) {
	client := os.Getenv(ipc.ClientCertEnv)
	if client == "" || os.Getenv(ipc.HostFDEnv) == "" {
		return nil, nil
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM([]byte(client)) {
		return nil, fmt.Errorf("the certificate in %s cannot be read", ipc.ClientCertEnv)
	}
	cert, err := ipc.NewCertificate()
	if err != nil {
		return nil, err
	}
	fmt.Println(ipc.CertificateLine(cert))
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
		MinVersion:   tls.VersionTLS13,
		// There is one connection in the life of this process; nothing is ever resumed.
		SessionTicketsDisabled: true,
	}, nil
}

// dialHost connects to the supervisor's host services: over the inherited socket, or through the broker of another host. The
// socket cannot be had again, so the process ends when its connection has broken: it would go on to say that it is well.
func (w *worker) dialHost(brokerID uint32) (*grpc.ClientConn, error) {
	text := os.Getenv(ipc.HostFDEnv)
	if text == "" {
		return w.broker.DialWithOptions(brokerID, ipc.DialOptions()...)
	}
	fd, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is no descriptor: %w", ipc.HostFDEnv, text, ipc.ErrInvalid)
	}
	syscall.CloseOnExec(fd) // children must not inherit it
	file := os.NewFile(uintptr(fd), "host services")
	conn, err := net.FileConn(file)
	_ = file.Close() // the connection has a copy
	if err != nil {
		return nil, err
	}
	var taken atomic.Bool
	dial := func(context.Context, string) (net.Conn, error) {
		if taken.Swap(true) {
			go w.cutOff()
			return nil, errHostGone
		}
		return conn, nil
	}
	host, err := grpc.NewClient("passthrough:host", append(ipc.DialOptions(),
		grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	// At once and not with the first call, which may come in minutes: the server gives up one that does not greet it.
	host.Connect()
	return host, nil
}

// errHostGone is met in the moment before this process ends.
var errHostGone = errors.New("the supervisor has ended the connection")
