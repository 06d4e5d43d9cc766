package telegram

import (
	"sync"
	"time"
)

// maxSeldom bounds what is remembered; then nothing more is due until the oldest is over.
const maxSeldom = 1000

// A seldom says for each key when something is due again that is not to be said with every message.
type seldom[K comparable] struct {
	again time.Duration

	mu   sync.Mutex
	last map[K]time.Time
}

func newSeldom[K comparable](again time.Duration) *seldom[K] {
	return &seldom[K]{again: again, last: map[K]time.Time{}}
}

// due reports whether it is due for a key now, and notes that it is done.
func (s *seldom[K]) due(key K, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, t := range s.last {
		if now.Sub(t) >= s.again {
			delete(s.last, k)
		}
	}
	if _, known := s.last[key]; known || len(s.last) >= maxSeldom {
		return false
	}
	s.last[key] = now
	return true
}
