package cli

import (
	"strings"
	"testing"
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
