package cli

import (
	"regexp"
	"strings"
	"testing"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func TestPicturesAreInASCIIWhereTheLocaleOrTheTerminalHasNoMore(t *testing.T) {
	for env, want := range map[string]bool{
		"LANG=en_GB.UTF-8 TERM=xterm-256color":           false,
		"LC_ALL=C.utf8 TERM=xterm":                       false,
		"LANG=de_DE.UTF-8":                               false, // into a file, without a terminal
		"LC_CTYPE=C.UTF-8 LANG=C":                        false,
		"LC_ALL=C LC_CTYPE=en_US.UTF-8 LANG=en_US.UTF-8": true,
		"LC_CTYPE=POSIX LANG=en_US.UTF-8 TERM=xterm":     true,
		"LANG=de_DE.ISO-8859-15@euro TERM=xterm":         true,
		"TERM=xterm":                                     true,
		"LANG=en_US.UTF-8 TERM=dumb":                     true,
		"LANG=en_US.UTF-8 TERM=linux":                    true,
		"LC_ALL= LC_CTYPE= LANG=en_US.UTF-8 TERM=tmux":   false,
	} {
		set := map[string]string{}
		for _, pair := range strings.Fields(env) {
			name, value, _ := strings.Cut(pair, "=")
			set[name] = value
		}
		if got := asciiOnly(func(name string) string { return set[name] }); got != want {
			t.Errorf("%s: %v", env, got)
		}
	}
}

// The signs of the program itself are ASCII there, in tables, help and errors; words of people and documents stay as they are.
func TestSignsAreInASCIIWhereTheLocaleHasNoMore(t *testing.T) {
	r := newRig(t)
	r.timeline.told = &controlv1.TellResponse{Stories: []*controlv1.Story{{
		Kind: "child_ended", Worker: "gateway-telegram-of-somebody", Message: "2× node, 看板" + strings.Repeat(" and on", 400), Next: "it goes on\x1b",
	}}}
	signsOf := regexp.MustCompile("[→…×�]")
	for _, line := range []string{"ctl timeline", "sessions delete --help", "help sessions archive", "ctl timeline no→where"} {
		t.Run(line, func(t *testing.T) {
			t.Setenv("LC_ALL", "C")
			out, errOut, _ := r.run(strings.Fields(line)...)
			if found := signsOf.FindAllString(out+errOut, -1); found != nil || out+errOut == "" {
				t.Errorf("%q in:\n%s%s", found, out, errOut)
			}
		})
	}
	if out := r.must("ctl", "timeline"); !strings.Contains(out, "2× node") || !strings.Contains(out, "…") {
		t.Errorf("%s", out)
	}
	t.Setenv("LC_ALL", "C")
	if out := r.must("ctl", "timeline"); !strings.Contains(out, "2x node, 看板") || !strings.Contains(out, "...") {
		t.Errorf("%s", out)
	}
	if out := r.must("ctl", "timeline", "-o", "json"); !strings.Contains(out, "2× node, 看板") {
		t.Errorf("%s", out)
	}
}

func TestColumnsStayInLineInASCII(t *testing.T) {
	var b strings.Builder
	if err := rows(plainWriter{&b}, "NAME | STATE", [][]string{{"a→b…", "ready"}, {"c", "down"}}); err != nil {
		t.Fatal(err)
	}
	if want := "NAME     STATE\na->b...  ready\nc        down\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
