package worker

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// mutualTLS returns what go-plugin's AutoMTLS would make for one start: the same exchange, in which the keys live as long as
// the process that they are for. The worker makes a certificate of its own and names it at its handshake, and the supervisor
// lets in nothing else.
func mutualTLS() (*tls.Config, string, error) {
	cert, err := ipc.NewCertificate()
	if err != nil {
		return nil, "", err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert, // for the host services of a plugin, where the supervisor is the server
		MinVersion:   tls.VersionTLS13,
		ServerName:   "localhost",
		// Nothing is recorded on its way from one process of a machine to another: the exchange that stands against tomorrow's
		// computers would only make each start longer.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256},
		// go-plugin sets both to the worker's certificate when the handshake has named it. Until then nobody is trusted;
		// nil would mean the authorities of the machine.
		RootCAs:   x509.NewCertPool(),
		ClientCAs: x509.NewCertPool(),
	}
	return config, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})), nil
}
