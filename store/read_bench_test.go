package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// BenchmarkConversation loads a conversation of 200 messages of a closed store that was opened again.
func BenchmarkConversation(b *testing.B) {
	path := b.TempDir() + "/state.db"
	fillLarge(b, path, 4000)
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		list, err := s.Conversation(context.Background(), fmt.Sprintf("s%07d", i%20))
		if err != nil || len(list) != 200 {
			b.Fatal(len(list), err)
		}
	}
}
