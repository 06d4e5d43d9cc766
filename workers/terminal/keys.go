package terminal

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync/atomic"
)

// keys is what a person types. One goroutine reads; whoever wants input takes it from there and can stop waiting,
// which a read of a file cannot.
type keys struct {
	chunks chan []byte
	rest   []byte
}

const ctrlC = 3

// readKeys begins to read. The goroutine ends with the input or with the process: a blocked read has no other end.
func readKeys(r io.Reader) *keys {
	k := &keys{chunks: make(chan []byte)}
	go func() {
		defer close(k.chunks)
		for {
			buf := make([]byte, 4096)
			n, err := r.Read(buf)
			if n > 0 {
				k.chunks <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return k
}

// next returns some input, io.EOF at its end, or the error of ctx.
func (k *keys) next(ctx context.Context) ([]byte, error) {
	if len(k.rest) > 0 {
		b := k.rest
		k.rest = nil
		return b, nil
	}
	select {
	case b, ok := <-k.chunks:
		if !ok {
			return nil, io.EOF
		}
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// line returns the next line without its end. When ctx ends first, what was typed so far is kept for the next call. A
// last line without an end is a line.
func (k *keys) line(ctx context.Context) (string, error) {
	var b []byte
	for {
		chunk, err := k.next(ctx)
		if err == io.EOF && len(b) > 0 {
			return string(b), nil
		}
		if err != nil {
			k.rest = b
			return "", err
		}
		if i := bytes.IndexByte(chunk, '\n'); i >= 0 {
			k.rest = chunk[i+1:]
			return strings.TrimSuffix(string(append(b, chunk[:i]...)), "\r"), nil
		}
		b = append(b, chunk...)
	}
}

// editor gives keys to one line editor. Ctrl-C ends the edit, which the line editor takes for the end of the input; broken
// tells the two apart.
type editor struct {
	keys   *keys
	ctx    context.Context
	out    io.Writer
	broken atomic.Bool
}

func (e *editor) Read(p []byte) (int, error) {
	b, err := e.keys.next(e.ctx)
	if err != nil {
		return 0, err
	}
	n := copy(p, b)
	// What is after a Ctrl-C or an Enter may be for the next edit: keys typed ahead.
	if i := bytes.IndexAny(p[:n], "\x03\r\n"); i >= 0 {
		n = i + 1
		e.broken.Store(p[i] == ctrlC)
	}
	e.keys.rest = b[n:]
	return n, nil
}

func (e *editor) Write(p []byte) (int, error) { return e.out.Write(p) }
