package supervisor

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestOnlyTheExecutableIsForgotten(t *testing.T) {
	text := `00400000-00ea7000 r-xp 00003000 fd:00 1                          /usr/bin/hermes supervisor
00ea7000-01a04000 r--p 00aa7000 fd:00 1                          /usr/bin/hermes supervisor
01a07000-01a8e000 rw-p 01607000 fd:00 1                          /usr/bin/hermes supervisor
7f0000000000-7f0000001000 r--p 00000000 00:00 0
7f0000002000-7f0000003000 r--s 00000000 fd:00 9                  /home/u/.hermes/state.db-shm
7f0000004000-7f0000005000 r-xp 00000000 fd:00 7                  /usr/lib/libc.so.6
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                  [vdso]
nonsense-7ffc00002000 r-xp 00000000 fd:00 1                      /usr/bin/hermes supervisor
`
	want := []mapping{{0x400000, 0xea7000}, {0xea7000, 0x1a04000}}
	if got := mappingsOf("/usr/bin/hermes supervisor", bufio.NewScanner(strings.NewReader(text))); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// What was forgotten is read again: the program goes on as before.
func TestAProgramThatWasForgottenGoesOn(t *testing.T) {
	p := newProgram()
	if len(p.mappings) < 2 {
		t.Fatalf("%d mappings of the executable", len(p.mappings))
	}
	for range 3 {
		p.forget()
	}
	if strings.Repeat("x", 3) != "xxx" {
		t.Error("it does not")
	}
}

func TestFewPagesAreThereWhenTheProgramHasBeenForgotten(t *testing.T) {
	p := newProgram()
	text := p.mappings[slices.IndexFunc(p.mappings, func(m mapping) bool { return clean(pagemap(t), m) })]
	text.advise(unix.MADV_POPULATE_READ)
	all := present(t, text)
	p.forget()
	if left := present(t, text); all == 0 || left > all/2 {
		t.Errorf("%d of %d pages", left, all)
	}
}

func TestAPageThatDiffersFromItsFileIsKept(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Write(bytes.Repeat([]byte("f"), 4*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, 4*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	m := mapping{uintptr(unsafe.Pointer(&data[0])), uintptr(unsafe.Pointer(&data[0])) + uintptr(len(data))}
	_ = data[0] // read only
	if !clean(pagemap(t), m) {
		t.Error("a page that was only read is not clean")
	}
	data[2*os.Getpagesize()] = 'x' // as a debugger does
	if clean(pagemap(t), m) {
		t.Fatal("a page that was written is clean")
	}
	(&program{mappings: []mapping{m}}).forget()
	if data[2*os.Getpagesize()] != 'x' {
		t.Error("what was written is lost")
	}
}

func TestAnIdleProgramIsForgottenAMomentAfterTheHealthChecks(t *testing.T) {
	var at []int64
	idle := true
	f := &forgetter{forget: func() { at = append(at, 0) }, idle: func() bool { return idle }}
	start := time.Unix(1000, 0)
	beat := func(second int64) {
		n := len(at)
		f.beat(start.Add(time.Duration(second) * time.Second))
		if len(at) > n {
			at[n] = second
		}
	}
	for s := int64(0); s < 150; s++ {
		idle = s < 115 || s > 125 // at 121 it has work
		beat(s)
	}
	if want := []int64{20, 21, 41, 61, 81, 101, 141}; !slices.Equal(at, want) {
		t.Errorf("forgotten at %v, want %v", at, want)
	}
	beat(-5000) // the clock was set back
	if len(at) != 7 {
		t.Error("before it had settled")
	}
}

func pagemap(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// present counts the pages of a mapping that are in memory.
func present(t *testing.T, m mapping) (n int) {
	t.Helper()
	page := uintptr(os.Getpagesize())
	entries := make([]byte, (m.to-m.from)/page*pagemapEntry)
	if _, err := pagemap(t).ReadAt(entries, int64(m.from/page)*pagemapEntry); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(entries); i += pagemapEntry {
		if binary.NativeEndian.Uint64(entries[i:])&pagePresent != 0 {
			n++
		}
	}
	return n
}
