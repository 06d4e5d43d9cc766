package systemd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// pair renders a service and its socket for a home.
func pair(t *testing.T, home string) (service, socket File) {
	t.Helper()
	u := Unit{Executable: "/opt/bin/hermes-supervisor", Home: home, Drain: time.Minute, Socket: "/run/user/1/hermes-supervisor/0123456789/control.sock"}
	text, err := u.Render()
	if err != nil {
		t.Fatal(err)
	}
	held, err := u.RenderSocket()
	if err != nil {
		t.Fatal(err)
	}
	return File{"a.service", text}, File{"a.socket", held}
}

// alone renders the service that makes its own socket.
func alone(t *testing.T, home string) File {
	t.Helper()
	text, err := Unit{Executable: "/opt/bin/hermes-supervisor", Home: home, Drain: time.Minute}.Render()
	if err != nil {
		t.Fatal(err)
	}
	return File{"a.service", text}
}

func earlier(t *testing.T, kind string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "earlier", "hermes-supervisor."+kind))
	if err != nil {
		t.Fatal(err)
	}
	return string(sealed(text))
}

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// What lies at the name of a unit, and what becomes of it. Others' units stay, whatever is forced.
func TestUnitsAreKnownByWhoseTheyAre(t *testing.T) {
	service, socket := pair(t, "/srv/hermes")
	otherService, otherSocket := pair(t, "/srv/other home")
	const stranger = "[Socket]\nListenStream=/run/hermes-supervisor/9999999999/control.sock\n"
	old := func(kind, from, to string) string { return strings.ReplaceAll(earlier(t, kind), from, to) }
	for _, c := range []struct {
		name, file, text string
		err, forced      error
	}{
		{"a service of ours", "a.service", string(sealed(service.Text)), nil, nil},
		{"a socket of ours", "a.socket", string(sealed(socket.Text)), nil, nil},
		{"an edited socket of ours", "a.socket", string(sealed(socket.Text)) + "# mine\n", ErrEdited, nil},
		{"a socket that was printed and not installed", "a.socket", string(socket.Text), ErrEdited, nil},
		{"a service of another home", "a.service", string(sealed(otherService.Text)), ErrForeign, ErrForeign},
		{"a socket of another home", "a.socket", string(sealed(otherSocket.Text)), ErrForeign, ErrForeign},
		{"an edited socket of another home", "a.socket", string(sealed(otherSocket.Text)) + "# mine\n", ErrForeign, ErrForeign},
		{"an earlier release's service", "a.service", earlier(t, "service"), nil, nil},
		{"an earlier release's socket", "a.socket", earlier(t, "socket"), nil, nil},
		{"an earlier release's service of another home", "a.service", old("service", "/srv/hermes", "/srv/other"), ErrForeign, ErrForeign},
		{"an earlier release's socket of another home", "a.socket", old("socket", "0123456789", "9876543210"), ErrForeign, ErrForeign},
		{"a service that was edited to serve another home", "a.service", strings.Replace(string(service.Text), " --home /srv/hermes run", " --home /srv/b run", 1), ErrForeign, ErrForeign},
		{"a socket of another program", "a.socket", stranger, ErrStranger, ErrStranger},
		{"a service of another program", "a.service", "[Service]\nExecStart=/usr/bin/other run\n", ErrStranger, ErrStranger},
		{"a masked unit", "a.service", "", ErrStranger, ErrStranger},
	} {
		for _, force := range []bool{false, true} {
			want := c.err
			if force {
				want = c.forced
			}
			in, ran := recorded(t)
			in.Home, in.RunName, in.Force = "/srv/hermes", "0123456789", force
			path := put(t, in.Dir, c.file, c.text)
			removed, err := in.Uninstall(t.Context(), "a.socket", "a.service")
			if !errors.Is(err, want) || there(path) != (want != nil) || len(removed) == 0 != (want != nil) || want != nil && len(*ran) > 0 {
				t.Errorf("uninstall of %s, force %v: removed %q, %v, ran %q; want %v", c.name, force, removed, err, *ran, want)
			}
			path = put(t, in.Dir, c.file, c.text)
			_, err = in.Install(t.Context(), []File{service, socket})
			text, _ := os.ReadFile(path)
			if !errors.Is(err, want) || want != nil && string(text) != c.text {
				t.Errorf("install over %s, force %v: %v, want %v", c.name, force, err, want)
			}
		}
	}
}

// One home may be written in several ways, and they may have been written in another way when the units were made.
func TestAHomeIsTheSameHoweverItIsWritten(t *testing.T) {
	dir := t.TempDir()
	home, link := filepath.Join(dir, `a "home" of 50% $x`), filepath.Join(dir, "link")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "up")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		unit, call string
		same       bool
	}{
		{home, home, true},
		{link, home, true},
		{home, link, true},
		{home + "/", home, true},
		{filepath.Join(dir, "up") + "/./link", home, true},
		{home, dir, false},
		{filepath.Join(dir, "to come"), filepath.Join(dir, "up", "to come"), true},
		{filepath.Join(dir, "to come"), filepath.Join(dir, "up", "not to come"), false},
		{filepath.Join(dir, "to come"), home, false},
	} {
		service, socket := pair(t, c.unit)
		for _, file := range []File{service, socket} {
			in, _ := recorded(t)
			in.Home = c.call
			path := put(t, in.Dir, file.Name, string(sealed(file.Text)))
			removed, err := in.Uninstall(t.Context(), file.Name)
			if c.same && (err != nil || len(removed) != 1) || !c.same && (!errors.Is(err, ErrForeign) || !there(path)) {
				t.Errorf("uninstall of %s of %q for %q: removed %q, %v", file.Name, c.unit, c.call, removed, err)
			}
		}
	}
}

func FuzzWord(f *testing.F) {
	for _, s := range []string{"/srv/hermes", `/srv/a b`, `/srv/50%/a"b$c\d'e;f`, ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := unquotedWord(unitWord(s)); got != s {
			t.Errorf("%q is written %s and read %q", s, unitWord(s), got)
		}
	})
}

// A service that makes its own socket and a socket unit beside it would be two holders of one path.
func TestTheSocketOfAnEarlierInstallationGoesWhereNoneIsAskedFor(t *testing.T) {
	service, socket := pair(t, "/srv/hermes")
	in, ran := recorded(t)
	in.Home, in.RunName = "/srv/hermes", "0123456789"
	if _, err := in.Install(t.Context(), []File{service, socket}); err != nil {
		t.Fatal(err)
	}
	*ran = nil
	done, err := in.Install(t.Context(), []File{alone(t, in.Home)}, "a.socket")
	if err != nil || len(done.Removed) != 1 || there(filepath.Join(in.Dir, "a.socket")) {
		t.Errorf("%+v, %v", done, err)
	}
	want := []string{"systemctl --user daemon-reload", "systemctl --user disable --now a.socket", "systemctl --user try-restart a.service", "systemctl --user daemon-reload"}
	if got := (*ran)[max(0, len(*ran)-len(want)):]; !slices.Equal(got, want) {
		t.Errorf("ran %q", *ran)
	}
	*ran = nil
	if done, err := in.Install(t.Context(), []File{alone(t, in.Home)}, "a.socket"); err != nil || len(done.Wrote)+len(done.Removed) > 0 || len(*ran) != 1 {
		t.Errorf("again: %+v, %v, ran %q", done, err, *ran)
	}
}

// Killed between its steps, it is done again as a whole: the service that runs would be left with a socket whose file is gone.
func TestASocketThatWasStoppedAndNotRemovedIsTakenAwayByTheNextInstallation(t *testing.T) {
	service, socket := pair(t, "/srv/hermes")
	in, ran := recorded(t)
	in.Home = "/srv/hermes"
	if _, err := in.Install(t.Context(), []File{service, socket}); err != nil {
		t.Fatal(err)
	}
	run := in.Run
	in.Run = failing(run, "try-restart", ErrSlow)
	if done, err := in.Install(t.Context(), []File{alone(t, in.Home)}, "a.socket"); !errors.Is(err, ErrSlow) || len(done.Removed) > 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	in.Run, *ran = run, nil
	done, err := in.Install(t.Context(), []File{alone(t, in.Home)}, "a.socket")
	if err != nil || len(done.Removed) != 1 || !slices.Contains(*ran, "systemctl --user try-restart a.service") {
		t.Errorf("%+v, %v, ran %q", done, err, *ran)
	}
}

// Others' sockets at that name would be handed to our service, so it is not installed beside them; nothing of theirs is touched.
func TestAnInstallationThatMeetsTheSocketOfSomebodyElseChangesNothing(t *testing.T) {
	service := alone(t, "/srv/hermes")
	_, foreign := pair(t, "/srv/other")
	for text, want := range map[string]error{
		string(sealed(foreign.Text)):              ErrForeign,
		"[Socket]\nListenStream=/run/else.sock\n": ErrStranger,
	} {
		in, ran := recorded(t)
		in.Home, in.Force = "/srv/hermes", true
		path := put(t, in.Dir, "a.socket", text)
		done, err := in.Install(t.Context(), []File{service}, "a.socket")
		left, _ := os.ReadFile(path)
		if !errors.Is(err, want) || len(done.Wrote) > 0 || len(*ran) > 0 || string(left) != text || there(filepath.Join(in.Dir, "a.service")) {
			t.Errorf("%+v, %v, ran %q", done, err, *ran)
		}
	}
}
