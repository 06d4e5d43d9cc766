package scratch_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// childVar makes this binary work in a folder until it is killed.
const childVar = "SCRATCH_TEST_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVar); dir != "" {
		f, err := scratch.Temp(dir, "work-*")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if err := os.WriteFile(filepath.Join(f.Path, "half"), nil, 0o600); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(f.Path)
		var b [1]byte
		_, _ = os.Stdin.Read(b[:])
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// worker works in a folder below dir until kill is called, and returns its path.
func worker(t *testing.T, dir string) (path string, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), childVar+"="+dir)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() { _ = c.Process.Kill(); _ = c.Wait(); _ = in.Close() })
	t.Cleanup(kill)
	path, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(path), kill
}

func folders(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestTheNextWorkerRemovesWhatAKilledOneLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [name]*")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		left, kill := worker(t, dir)
		kill()
		if n := folders(t, dir); n != 1 {
			t.Errorf("%d folders after a kill", n)
		}
		if _, err := os.Stat(left); err != nil {
			t.Error(err)
		}
	}
	f, err := scratch.Temp(dir, "work-*")
	if err != nil {
		t.Fatal(err)
	}
	if n := folders(t, dir); n != 1 {
		t.Errorf("%d folders while one is worked in", n)
	}
	if err := f.Remove(); err != nil {
		t.Error(err)
	}
	if n := folders(t, dir); n != 0 {
		t.Errorf("%d folders in the end", n)
	}
}

func TestAFolderThatIsWorkedInStays(t *testing.T) {
	dir := t.TempDir()
	held, kill := worker(t, dir)
	pattern := filepath.Join(dir, "work-*")
	if list := scratch.Abandoned(pattern); len(list) != 0 {
		t.Errorf("abandoned are %v", list)
	}
	if removed, err := scratch.Sweep(pattern); len(removed) != 0 || err != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := scratch.Make(held); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made once more: %v", err)
	}
	kill()
	if list := scratch.Abandoned(pattern); len(list) != 1 || list[0] != held {
		t.Errorf("abandoned are %v", list)
	}
	if removed, err := scratch.Sweep(pattern); len(removed) != 1 || err != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
}

func TestWhatIsPublishedStays(t *testing.T) {
	dir := t.TempDir()
	f, err := scratch.Make(filepath.Join(dir, "sub", "work-1"))
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(dir, "sub", "whole")
	if err := errors.Join(os.WriteFile(filepath.Join(f.Path, "x"), nil, 0o600), os.Rename(f.Path, whole), f.Remove()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(whole, "x")); err != nil {
		t.Error(err)
	}
}

func TestFilesAndLinksAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	other := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "work-file"), nil, 0o600), os.Symlink(other, filepath.Join(dir, "work-link"))); err != nil {
		t.Fatal(err)
	}
	if removed, err := scratch.Sweep(filepath.Join(dir, "work-*")); len(removed) != 0 || err != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
}

// Many begin and sweep at the same place: each gets a folder of its own that stays while it is worked in.
func TestWorkersAtOnePlaceDoNotHarmEachOther(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				f, err := scratch.Temp(dir, "work-*")
				if err != nil {
					t.Error(err)
					return
				}
				if !strings.HasPrefix(filepath.Base(f.Path), "work-") {
					t.Errorf("the name is %s", f.Path)
				}
				if err := os.WriteFile(filepath.Join(f.Path, "x"), nil, 0o600); err != nil {
					t.Error(err)
				}
				if err := f.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := folders(t, dir); n != 0 {
		t.Errorf("%d folders are left", n)
	}
}
