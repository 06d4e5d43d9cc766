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
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() {
	children["write to a failing disk"] = writeToFailingDisk
	children["use a disk that fails once"] = useDiskThatFailsOnce
	children["write where the disk cannot be read"] = writeWhereDiskCannotBeRead
}

// failingCalls makes the next call of SQLite fail whose name is that of a file in the folder EIO, and removes that file; if
// the file is a folder, it stays, and all calls fail.
// Go itself does not call libc, so nothing else meets it.
const failingCalls = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
static int fails(const char *call) {
	char path[4096];
	const char *dir = getenv("EIO");
	if (!dir) return 0;
	snprintf(path, sizeof path, "%s/%s", dir, call);
	if (unlink(path) != 0 && errno != EISDIR) return 0;
	errno = EIO;
	return 1;
}
#define WRAP(result, name, call, params, args) \
	result name params { \
		static result (*real) params; \
		if (!real) real = dlsym(RTLD_NEXT, #name); \
		return fails(call) ? -1 : real args; \
	}
WRAP(int, fsync, "fsync", (int fd), (fd))
WRAP(int, fdatasync, "fsync", (int fd), (fd))
WRAP(ssize_t, write, "write", (int fd, const void *b, size_t n), (fd, b, n))
WRAP(ssize_t, pwrite, "write", (int fd, const void *b, size_t n, off_t at), (fd, b, n, at))
WRAP(ssize_t, pwrite64, "write", (int fd, const void *b, size_t n, off64_t at), (fd, b, n, at))
WRAP(ssize_t, read, "read", (int fd, void *b, size_t n), (fd, b, n))
WRAP(ssize_t, pread, "read", (int fd, void *b, size_t n, off_t at), (fd, b, n, at))
WRAP(ssize_t, pread64, "read", (int fd, void *b, size_t n, off64_t at), (fd, b, n, at))
WRAP(int, open, "open", (const char *path, int flags, mode_t mode), (path, flags, mode))
WRAP(int, open64, "open", (const char *path, int flags, mode_t mode), (path, flags, mode))
`

// failingDisk returns the environment of a child whose calls fail by the names of files in a folder.
func failingDisk(t *testing.T, dir string) (env []string, folder string) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc here to make a failing disk")
	}
	source, library, folder := filepath.Join(dir, "eio.c"), filepath.Join(dir, "eio.so"), filepath.Join(dir, "eio")
	if err := errors.Join(os.WriteFile(source, []byte(failingCalls), 0o600), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-shared", "-fPIC", "-fno-builtin", "-w", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		t.Fatal("gcc cannot make the library: ", string(out))
	}
	return []string{"LD_PRELOAD=" + library, "EIO=" + folder}, folder
}

// failNext makes the next call of that name fail.
func failNext(call string) { _ = os.WriteFile(filepath.Join(os.Getenv("EIO"), call), nil, 0o600) }

// failAll makes all calls of that name fail.
func failAll(call string) { _ = os.Mkdir(filepath.Join(os.Getenv("EIO"), call), 0o700) }

// writeToFailingDisk accepts messages while a call fails twice, and tells what it was answered.
func writeToFailingDisk(args []string) error {
	call := args[1]
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
			failNext(call)
		}
		try(message)
	}
	_, err = s.Open(ctx)
	fmt.Println("reads go on:", err == nil)
	return nil // without Close, as after a kill
}

func TestAFailingDiskIsNotTrusted(t *testing.T) {
	for _, call := range []string{"fsync", "write"} {
		t.Run(call, func(t *testing.T) {
			dir := t.TempDir()
			env, _ := failingDisk(t, dir)
			path := filepath.Join(dir, "state.db")
			c := startChildEnv(t, env, "write to a failing disk", path, call)
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
		})
	}
}

// useDiskThatFailsOnce opens a store while a call fails, and tells how it does at first and in the end.
func useDiskThatFailsOnce(args []string) error {
	ctx := context.Background()
	path, call, when := args[0], args[1], args[2]
	if when == "at open" {
		failNext(call)
	}
	s, err := store.OpenState(ctx, path, store.Options{Readers: 1})
	if err != nil {
		return err
	}
	if when == "later" {
		failNext(call)
		_, err = s.Conversation(ctx, "s")
		fmt.Println("a read failed:", err != nil)
		for s.Health().State == "ok" {
			time.Sleep(20 * time.Millisecond)
		}
	}
	h := s.Health()
	fmt.Println("condition:", h.Condition)
	for err = try(s, "again"); errors.Is(err, store.ErrSuspended) || errors.Is(err, store.ErrReadOnly); err = try(s, "again") {
		time.Sleep(20 * time.Millisecond)
	}
	list, rerr := s.Conversation(ctx, "s")
	fmt.Println("in the end:", err, rerr, len(list))
	return s.Close()
}

func TestADiskThatFailsOnceHasANameAndIsUsedAgain(t *testing.T) {
	for _, c := range []struct{ call, when, condition string }{
		{"open", "at open", "disk_error"}, // SQLite tries to open the file for reads alone then
		{"read", "at open", "disk_error"},
		{"read", "later", "disk_error"}, // SQLite takes it for damage; the look through the file that follows finds none
	} {
		t.Run(c.call+" "+c.when, func(t *testing.T) {
			path := manyRows(t, 200)
			env, _ := failingDisk(t, filepath.Dir(path))
			p := startChildEnv(t, env, "use a disk that fails once", path, c.call, c.when)
			if c.when == "later" {
				p.expect("a read failed: true")
			}
			p.expect("condition: " + c.condition)
			p.expect("in the end: <nil> <nil> 200")
			if err := p.wait(); err != nil {
				t.Fatal(err, p.errs.String())
			}
			storetest.Integrity(t, path)
		})
	}
}

// writeWhereDiskCannotBeRead meets an error while a request of the writer reads, from a disk that is broken or not.
func writeWhereDiskCannotBeRead(args []string) error {
	ctx := context.Background()
	s, err := store.OpenState(ctx, args[0], store.Options{Readers: 1})
	if err != nil {
		return err
	}
	if args[1] == "broken" {
		store.PretendDisk(badDisk{size: 1 << 20, bad: 5000})
	}
	_ = s.Ping(ctx)
	failAll("read") // one that fails once is made up for by another attempt
	_, err = s.DeleteSession(ctx, "s")
	if !errors.Is(err, store.ErrFailed) {
		return fmt.Errorf("the session was deleted: %w", err)
	}
	for s.Looking() {
		time.Sleep(10 * time.Millisecond)
	}
	h := s.Health()
	fmt.Println(h.State, h.Condition)
	if err := try(s, "later"); !errors.Is(err, store.ErrFailed) {
		return fmt.Errorf("a message was taken: %w", err)
	}
	return nil // without Close, as after a kill
}

func TestADiskThatTheWriterCannotReadIsNotCalledDamage(t *testing.T) {
	for disk, want := range map[string]string{"broken": "failed disk_error", "sound": "failed corrupt"} {
		t.Run(disk, func(t *testing.T) {
			path := manyRows(t, 20000) // more than the cache of the writer
			env, _ := failingDisk(t, filepath.Dir(path))
			p := startChildEnv(t, env, "write where the disk cannot be read", path, disk)
			p.expect(want)
			if err := p.wait(); err != nil {
				t.Fatal(err, p.errs.String())
			}
			storetest.StateAt(t, path, store.Options{}) // the disk is well again
			if n := storetest.Query(t, path, "SELECT count(*) FROM messages"); n[0] != "20000" {
				t.Errorf("%v messages", n)
			}
		})
	}
}
