package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
)

// pictured compares what the last command printed with what a page shows below a line, up to the next command or the end of
// the block: words and their order must be the same; numbers, names of places and widths of columns need not.
func pictured(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pictured PAGE LINE")
	}
	page, err := os.ReadFile(filepath.Join(ts.Getenv("REPO"), args[0]))
	ts.Check(err)
	_, shown, found := strings.Cut(string(page), "\n"+args[1]+"\n")
	if !found {
		ts.Fatalf("%s does not show %q", args[0], args[1])
	}
	if end := regexp.MustCompile("(?m)^([$] |```)").FindStringIndex(shown); end != nil {
		shown = shown[:end[0]]
	}
	if diff := cmp.Diff(shape(shown), shape(ts.ReadFile("stdout"))); diff != "" {
		ts.Fatalf("%s shows something else below %q (-page +today):\n%s", args[0], args[1], diff)
	}
}

// shapes are what may differ between two looks at the same thing. The first come first.
var shapes = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`(?m)^model .*$`), "model"},
	{regexp.MustCompile(`(?m)^(home +|.* home )[^ ;\n]+`), "${1}HOME"},
	{regexp.MustCompile(`(hermes-supervisor|version) v?[0-9a-f][^ ,]*`), "$1 VERSION"},
	{regexp.MustCompile(`turn_[0-9a-f]+`), "TURN"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d [A-Z]+`), "DAY"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`\d[\d.]* [KMG]iB`), "SIZE"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(d|h|ms|m|s))+\b`), "SPAN"},
	{regexp.MustCompile(`(agent-)?\d[\d.]*`), "${1}N"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// shape is a text without what differs from one look to the next, line by line.
func shape(text string) []string {
	for _, s := range shapes {
		text = s.from.ReplaceAllString(text, s.to)
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}
