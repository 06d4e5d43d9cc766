package confine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPolicySurvivesTheWay(t *testing.T) {
	p := Policy{Name: "weather", Data: "/home/data", Read: []string{"/a b"}, Connect: []uint16{443}, Limits: Limits{FDs: 64}}
	got, err := Decode(p.Encode())
	if err != nil || got.Encode() != p.Encode() {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatHoldsTheHomeIsNeverGranted(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "ada", ".hermes")
	if err := os.MkdirAll(filepath.Join(home, "memories"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "ada"):        "holds",
		"/":                              "holds",
		home:                             "holds",
		link:                             "holds",
		filepath.Join(home, "state.db"):  "is in",
		filepath.Join(link, "memories"):  "is in",
		filepath.Join(dir, "bob"):        "",
		filepath.Join(dir, "ada", "txt"): "",
		"relative":                       "absolute",
		dir + "/../etc":                  "absolute",
		dir + "/ada/.hermesx":            "",
	} {
		err := CheckPath(path, home)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", path, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestWhatAKernelLacksIsSaid(t *testing.T) {
	if m := Layers(0, false).Missing(); !strings.Contains(m, "files") || !strings.Contains(m, "tcp") {
		t.Errorf("without Landlock: %q", m)
	}
	if m := Layers(100, true).Missing(); m != "file modes" {
		t.Errorf("with all of it: %q", m)
	}
	for _, l := range Layers(5, false).Layers {
		if !l.Enforced && l.Name != "file modes" && !strings.Contains(l.Detail, "this kernel has 5") {
			t.Errorf("%s: %q", l.Name, l.Detail)
		}
	}
}

func TestAUserOfItsOwnNeedsNoLandlockForWhatUsersAreKeptFrom(t *testing.T) {
	if m := Layers(0, true).WithUser("sky").Missing(); m != "files, truncation, tcp, abstract sockets, sockets in files, udp" {
		t.Errorf("without Landlock: %q", m)
	}
	if m := Layers(100, true).WithUser("sky").Missing(); m != "" {
		t.Errorf("with all of it: %q", m)
	}
	if m := Layers(100, false).WithUser("sky").Missing(); m != "file modes, user" {
		t.Errorf("not as root: %q", m)
	}
	if r := Layers(7, true); len(r.WithUser("").Layers) != len(r.Layers) {
		t.Error("no user is none")
	}
}
