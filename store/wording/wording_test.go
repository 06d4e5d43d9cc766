package wording_test

import (
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

func TestOneThingIsNotSaidToBeMany(t *testing.T) {
	for n, want := range map[int64]string{0: "0 files", 1: "1 file", 2: "2 files", -1: "-1 files"} {
		if got := wording.Count(n, "file", "files"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
