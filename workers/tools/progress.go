package tools

import (
	"bytes"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

const (
	// progressEvery is how often the newest line of an output is shown to the person who waits.
	progressEvery = 250 * time.Millisecond
	// lineBytes is how much of a line is kept to be shown.
	lineBytes = 1024
)

// A progress shows the newest whole line of what is written to it, at most every progressEvery.
type progress struct {
	mu    sync.Mutex
	line  []byte // the newest whole one
	part  []byte // the beginning of the next
	fresh bool
	done  chan struct{}
	ended chan struct{}
}

// show begins to show lines of a call until stop is called.
func show(c *plugins.Call) *progress {
	p := &progress{done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-p.done:
				return
			case <-tick.C:
				if line, ok := p.take(); ok {
					c.Progress("%s", line)
				}
			}
		}
	}()
	return p
}

func (p *progress) stop() {
	close(p.done)
	<-p.ended
}

// Write never fails.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(b)
	if k := bytes.LastIndexByte(b, '\n'); k >= 0 {
		if begin := bytes.LastIndexByte(b[:k], '\n'); begin >= 0 {
			p.part = p.part[:0]
			b, k = b[begin+1:], k-begin-1
		}
		p.add(b[:k])
		if line := bytes.TrimSpace(p.part); len(line) > 0 {
			p.line, p.fresh = append(p.line[:0], line...), true
		}
		p.part, b = p.part[:0], b[k+1:]
	}
	p.add(b)
	return n, nil
}

func (p *progress) add(b []byte) {
	p.part = append(p.part, b[:min(len(b), max(0, lineBytes-len(p.part)))]...)
}

func (p *progress) take() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.fresh = false }()
	return string(p.line), p.fresh
}
