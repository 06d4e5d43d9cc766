package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnvFile(t *testing.T) {
	text := strings.Join([]string{
		"# a comment", "", "PLAIN=value", "  SPACED = a b  ", "export EXPORTED=yes", "exportNOT=name", "COMMENTED=value # not this",
		"HASH=a#b", "SINGLE='a # b $x \\n'", `DOUBLE="tab\tline\nquote\" dollar\$ back\\ other\x"`, "EMPTY=", "QUOTED_EMPTY=''",
		"MULTI=\"one", "two\" # end", "AFTER=1", "TWICE=a", "TWICE=b", "EQUALS=a=b=c", "CRLF=x\r",
	}, "\n")
	r := &reader{}
	got := parseEnv(text, r)
	want := map[string]string{
		"PLAIN": "value", "SPACED": "a b", "EXPORTED": "yes", "exportNOT": "name", "COMMENTED": "value", "HASH": "a#b",
		"SINGLE": `a # b $x \n`, "DOUBLE": "tab\tline\nquote\" dollar$ back\\ other\\x", "EMPTY": "", "QUOTED_EMPTY": "",
		"MULTI": "one\ntwo", "AFTER": "1", "TWICE": "b", "EQUALS": "a=b=c", "CRLF": "x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if len(r.warnings) > 0 {
		t.Errorf("warnings %v", r.warnings)
	}
}

func TestEnvFileWarnsByLineAndNeverQuotes(t *testing.T) {
	text := "GOOD=1\nsk-live-loose\n1X=sk-live-a\nOPEN=\"sk-live-b\nNEXT=2\nTAIL='a'sk-live-c\nREF=${GOOD}\n"
	r := &reader{}
	got := parseEnv(text, r)
	want := []string{
		".env:2: is not NAME=value",
		".env:3: has no name of letters, digits and _ before the =",
		".env:4: has no closing quote",
		".env:6: has text after the closing quote",
		".env:7: REF: holds ${…}, which is not replaced here",
	}
	var lines []string
	for _, w := range r.warnings {
		lines = append(lines, w.String())
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if strings.Contains(strings.Join(lines, ""), "sk-live") {
		t.Error("a warning quotes a secret")
	}
	if got["NEXT"] != "2" || got["GOOD"] != "1" {
		t.Errorf("lines after a broken one are lost: %v", got)
	}
}

func TestAnEnvFileThatOthersCanReadIsAWarning(t *testing.T) {
	isolate(t)
	home := t.TempDir()
	write(t, filepath.Join(home, EnvFileName), "A=1\n")
	if err := os.Chmod(filepath.Join(home, EnvFileName), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(home)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "chmod 600") {
		t.Errorf("warnings %v", c.Warnings)
	}
}

func FuzzEnvFile(f *testing.F) {
	for _, s := range []string{"A=1\nB='x'\nC=\"y\\n\"", "export A=\"\n\n\"#", "A='", "=\n=", "A=\"\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := &reader{}
		for name := range parseEnv(text, r) {
			if !validName(name) {
				t.Errorf("name %q", name)
			}
		}
		lines := strings.Count(text, "\n") + 1
		for _, w := range r.warnings {
			if w.Line < 1 || w.Line > lines {
				t.Errorf("line %d of %d", w.Line, lines)
			}
		}
	})
}
