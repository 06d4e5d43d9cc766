package cli

import (
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// mask writes stdout to a file with what matches replaced: mask FILE [REGEXP REPLACEMENT]…
func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 1 {
		ts.Fatalf("usage: mask FILE [REGEXP REPLACEMENT]…")
	}
	text := ts.ReadFile("stdout")
	for i := 1; i < len(args); i += 2 {
		text = regexp.MustCompile("(?m)"+args[i]).ReplaceAllString(text, args[i+1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// locked FILE holds the lock of a file, held FILE has a process that has it open, both until release.
func locked(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR|os.O_CREATE, 0o600)
	ts.Check(err)
	ts.Check(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	holdUntilRelease(ts, func() { _ = f.Close() })
}

func held(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer func() { _ = f.Close() }()
	c := exec.Command("sleep", "600")
	c.ExtraFiles = []*os.File{f}
	ts.Check(c.Start())
	holdUntilRelease(ts, func() { _ = c.Process.Kill(); _ = c.Wait() })
}

// heldKey is where a script keeps how to let go of what it holds.
const heldKey = "held"

func holdUntilRelease(ts *testscript.TestScript, f func()) {
	once := sync.OnceFunc(f)
	*ts.Value(heldKey).(*func()) = once
	ts.Defer(once)
}

func release(ts *testscript.TestScript, _ bool, _ []string) { (*ts.Value(heldKey).(*func()))() }
