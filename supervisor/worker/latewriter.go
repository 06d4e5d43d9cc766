package worker

import (
	"io"
	"sync"
)

// A lateWriter keeps what a worker prints over its connection. It is made before there is a process, and written to by
// one goroutine of go-plugin after.
type lateWriter struct {
	process *process
	stream  string
	once    sync.Once
	w       io.Writer
}

func (l *lateWriter) Write(p []byte) (int, error) {
	l.once.Do(func() { l.w = l.process.source.LineWriter(l.stream) })
	return l.w.Write(p)
}
