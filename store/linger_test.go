package store

import (
	"testing"
	"time"
)

func TestLinger(t *testing.T) {
	var l linger
	check := func(what string, size int, wait time.Duration) {
		t.Helper()
		if s, w := l.next(); s != size || w != wait {
			t.Errorf("%s: %d, %v, not %d, %v", what, s, w, size, wait)
		}
	}
	check("at first", 0, 0)
	for range 100 {
		l.saw(1, 800*time.Microsecond)
	}
	check("a lone writer", 0, 0)
	l.saw(16, 800*time.Microsecond)
	_, wait := l.next()
	if wait <= 0 || wait > 200*time.Microsecond {
		t.Errorf("a group of 16 waits %v", wait)
	}
	l.saw(1, time.Hour)
	check("a slow disk", 12, lingerMost)
	for range 5 {
		l.saw(1, 0)
	}
	check("alone again", 0, 0)
	l.saw(10*batchLimit, time.Millisecond)
	if size, _ := l.next(); size != batchLimit {
		t.Errorf("waits for %d", size)
	}
}
