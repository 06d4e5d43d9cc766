package supervisor

import (
	"bufio"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOnlyWhatComesBackFromItsFileIsForgotten(t *testing.T) {
	text := `00400000-00ea7000 r-xp 00003000 fd:00 1 /usr/bin/hermes-supervisor
Rss:               10512 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00ea7000-01a04000 r--p 00aa7000 fd:00 1 /usr/bin/hermes-supervisor
Anonymous:             4 kB
01a07000-01a8e000 rw-p 01607000 fd:00 1 /usr/bin/hermes-supervisor
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000002000-7f0000003000 r--s 00000000 fd:00 9 /home/u/.hermes/state.db-shm
Anonymous:             0 kB
7f0000004000-7f0000005000 r-xp 00000000 fd:00 7 /usr/lib/libc.so.6
Anonymous:             0 kB
7f0000006000-7f0000007000 r-xp 00000000 fd:00 8 /usr/bin/old (deleted)
Anonymous:             0 kB
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0xea7000}, {0x7f0000004000, 0x7f0000005000}}
	if got := cleanMappings(bufio.NewScanner(strings.NewReader(text))); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// What was forgotten is read again: the program goes on as before.
func TestAProgramThatWasForgottenGoesOn(t *testing.T) {
	for range 3 {
		giveBack()
	}
	if strings.Repeat("x", 3) != "xxx" {
		t.Error("it does not")
	}
}

func TestTheProgramIsForgottenAfterACollectionAndNotWithoutOne(t *testing.T) {
	var a afterCollection
	now := time.Unix(1000, 0)
	runtime.GC()
	beat := func(after time.Duration) bool {
		before := a.last
		now = now.Add(after)
		a.beat(now)
		return a.last != before
	}
	a.beat(now)
	if beat(time.Second) {
		t.Error("during the start")
	}
	if !beat(forgetEvery) {
		t.Error("not after the first collections")
	}
	old := debug.SetGCPercent(-1) // none but those that are asked for
	defer debug.SetGCPercent(old)
	a.beat(now.Add(forgetEvery)) // one that had begun
	now = now.Add(forgetEvery)
	if beat(forgetEvery) {
		t.Error("without a collection")
	}
	runtime.GC()
	if !beat(time.Second) {
		t.Error("not after a collection")
	}
	runtime.GC()
	if beat(time.Second) {
		t.Error("again within a second")
	}
	if !beat(forgetEvery) {
		t.Error("not a minute later")
	}
}
