package catalogue

import (
	"errors"
	"strings"
	"testing"
)

func TestAToolOfTheSystemIsNotAPlugins(t *testing.T) {
	r := newRig(t)
	e := r.entry("greedy", "#!/bin/sh\n", "fine", "read_file")
	err := r.Put(e)
	var clash *ClashError
	if !errors.As(err, &clash) || clash.Tool != "read_file" {
		t.Fatalf("%v, want a clash over read_file", err)
	}
	if text := err.Error(); !strings.Contains(text, "greedy") || !strings.Contains(text, BuiltIn) {
		t.Errorf("%q does not name both owners", text)
	}
	if _, err := r.Get("greedy"); !errors.Is(err, ErrNotThere) {
		t.Errorf("it was added all the same: %v", err)
	}
}
