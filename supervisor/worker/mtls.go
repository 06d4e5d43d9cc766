package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// clientCertEnv is where a worker's go-plugin finds the certificate of the only client that it lets in. With it, the worker
// makes one of its own and names it in its handshake, and the supervisor lets in nothing else.
const clientCertEnv = "PLUGIN_CLIENT_CERT"

// mutualTLS returns what go-plugin's AutoMTLS would make for one start, on P-256 instead of P-521: the same exchange, in
// which the keys live as long as the process that they are for. Its P-521 key costs 5 ms before the worker is even started,
// and each of the two connections to it 5 ms more; a restart is shorter by a quarter without.
func mutualTLS() (*tls.Config, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, "", fmt.Errorf("make a certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "localhost", Organization: []string{"hermes-supervisor"}},
		DNSNames:     []string{"localhost"}, // the name that both ends of go-plugin check
		NotBefore:    now.Add(-time.Minute),
		// A worker may run for years, and a clock be set; nobody else ever sees this certificate.
		NotAfter:              now.AddDate(30, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IsCA:                  true, // it is its own authority
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, "", fmt.Errorf("make a certificate: %w", err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, // for the host services, where the supervisor is the server
		MinVersion:   tls.VersionTLS13,
		ServerName:   "localhost",
		// go-plugin sets both to the worker's certificate when the handshake has named it. Until then nobody is trusted;
		// nil would mean the authorities of the machine.
		RootCAs:   x509.NewCertPool(),
		ClientCAs: x509.NewCertPool(),
	}
	return config, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}
