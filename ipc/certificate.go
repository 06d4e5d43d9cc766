package ipc

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"math/big"
	"time"
)

// ClientCertEnv is where a worker finds the certificate of the only client that it lets in. The name is go-plugin's.
const ClientCertEnv = "PLUGIN_CLIENT_CERT"

// NewCertificate makes what go-plugin's AutoMTLS makes for one side of one connection, on P-256 instead of P-521: a key that
// lives as long as the process that it is for, and a certificate that is its own authority. A P-521 key costs 5 ms at its
// making, and as much again at each end of each connection.
func NewCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
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
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// certificateMark begins the line by which a worker that makes its certificate itself names it, before its handshake, whose
// field for it go-plugin leaves empty then.
const certificateMark = "certificate|"

// CertificateLine is the line of a certificate.
func CertificateLine(c tls.Certificate) string {
	return certificateMark + base64.RawStdEncoding.EncodeToString(c.Certificate[0])
}

// CutCertificate returns the certificate that a line names, as the handshake would, and whether it names one.
func CutCertificate(line []byte) (cert []byte, ok bool) {
	return bytes.CutPrefix(bytes.TrimSpace(line), []byte(certificateMark))
}
