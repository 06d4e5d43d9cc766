package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() { children["write to a failing disk"] = writeToFailingDisk }

// failingSync makes the next fsync fail when the file named by FSYNC_FAILS is there, and removes that file.
const failingSync = `
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int fails(void) {
	const char *trigger = getenv("FSYNC_FAILS");
	return trigger && unlink(trigger) == 0;
}
int fsync(int fd) {
	if (fails()) { errno = EIO; return -1; }
	return syscall(SYS_fsync, fd);
}
int fdatasync(int fd) {
	if (fails()) { errno = EIO; return -1; }
	return syscall(SYS_fdatasync, fd);
}
`

// writeToFailingDisk accepts messages while fsync fails twice, and tells what it was answered.
func writeToFailingDisk(args []string) error {
	ctx := context.Background()
	s, err := store.OpenState(ctx, args[0], store.Options{})
	if err != nil {
		return err
	}
	try := func(message string) {
		_, err := s.Accept(ctx, store.Inbound{Platform: "test", ChatID: "1", MessageID: message})
		fmt.Printf("%s failed=%v refused=%v %s\n", message, err != nil, errors.Is(err, store.ErrFailed), s.Health().State)
	}
	for _, message := range []string{"good", "first", "first", "second", "second"} {
		retry := message == "first" && s.Health().State == "degraded" // it works
		_ = s.Ping(ctx)                                               // what follows the last commit is over: it must not meet the failing disk in place of the message
		if message != "good" && !retry {
			_ = os.WriteFile(os.Getenv("FSYNC_FAILS"), nil, 0o600)
		}
		try(message)
	}
	_, err = s.Open(ctx)
	fmt.Println("reads go on:", err == nil)
	return nil // without Close, as after a kill
}

func TestAFailingDiskIsNotTrusted(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc here to make a failing fsync")
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "fsync.c"), filepath.Join(dir, "fsync.so")
	if err := os.WriteFile(source, []byte(failingSync), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Skip("gcc cannot make a library here: ", string(out))
	}
	path := filepath.Join(dir, "state.db")
	c := startChildEnv(t, []string{"LD_PRELOAD=" + library, "FSYNC_FAILS=" + filepath.Join(dir, "fail")}, "write to a failing disk", path)
	for _, want := range []string{
		"good failed=false refused=false ok",
		"first failed=true refused=false degraded", // once: the WAL is copied and cut
		"first failed=false refused=false degraded",
		"second failed=true refused=false failed", // again: the disk is given up
		"second failed=true refused=true failed",
		"reads go on: true",
	} {
		c.expect(want)
	}
	if err := c.wait(); err != nil {
		t.Fatal(err, c.errs.String())
	}
	storetest.StateAt(t, path, store.Options{})
	got := storetest.Query(t, path, "SELECT message_id FROM hs_inbox ORDER BY id")
	if s := strings.Join(got, " "); s != "good first" && s != "good first second" { // what failed may be there or not
		t.Errorf("messages are %v", got)
	}
}
