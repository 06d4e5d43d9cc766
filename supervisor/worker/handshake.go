package worker

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

// A handshake is a reader of at most one line, which comes later or never. Unlike a pipe it never blocks who gives it.
type handshake struct {
	mu    sync.Mutex
	line  []byte // given
	err   error  // why there is none
	ready chan struct{}

	ended chan struct{} // after the line, or instead of it
	rest  []byte        // only used by the reader
	read  bool
}

func newHandshake() *handshake {
	return &handshake{ready: make(chan struct{}), ended: make(chan struct{})}
}

// give hands the line over. Only the first counts.
func (h *handshake) give(line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line != nil || h.err != nil {
		return
	}
	h.line = append(bytes.Clone(line), '\n')
	close(h.ready)
}

// end ends the stream. If no line has been given, err says why.
func (h *handshake) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line == nil && h.err == nil {
		h.err = err
		close(h.ready)
	}
	select {
	case <-h.ended:
	default:
		close(h.ended)
	}
}

// given returns the line, or why there is none; both are empty while neither is known.
func (h *handshake) given() (line string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(bytes.TrimSpace(h.line)), h.err
}

// Read waits for the line and, after it, for the end.
func (h *handshake) Read(p []byte) (int, error) {
	if !h.read {
		<-h.ready
		h.read = true
		h.mu.Lock()
		h.rest = h.line
		h.mu.Unlock()
	}
	if len(h.rest) == 0 {
		<-h.ended
		return 0, io.EOF
	}
	n := copy(p, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

// Close is go-plugin's; there is nothing to close.
func (h *handshake) Close() error { return nil }

// closedLimit is how long after the end of its stdout a process may live that has printed no handshake: one that ends closes it a
// moment before.
const closedLimit = time.Second

var errStdoutClosed = errors.New("it closed its stdout before its handshake")

// stdoutClosed gives up a handshake that cannot come any more, unless the process has ended, which says more.
func (p *process) stdoutClosed() {
	limit := time.NewTimer(closedLimit)
	defer limit.Stop()
	select {
	case <-p.exited:
	case <-limit.C:
		p.handshake.end(errStdoutClosed)
	}
}

// isHandshake recognises go-plugin's line: core version, protocol version, network, address, transport and more.
func isHandshake(line []byte) bool {
	parts := bytes.Split(line, []byte{'|'})
	if len(parts) < 4 || !isNumber(bytes.TrimSpace(parts[0])) || !isNumber(parts[1]) {
		return false
	}
	network := string(parts[2])
	return network == "unix" || network == "tcp"
}

// withCertificate puts a certificate that was named before the handshake into its field for one, if that is empty.
func withCertificate(line, certificate []byte) []byte {
	parts := bytes.Split(bytes.TrimSpace(line), []byte{'|'})
	if len(parts) < 6 || len(parts[5]) > 0 {
		return line
	}
	parts[5] = certificate
	return bytes.Join(parts, []byte{'|'})
}

func isNumber(b []byte) bool {
	if len(b) == 0 || len(b) > 9 {
		return false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
