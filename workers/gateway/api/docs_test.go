package api

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Who writes a client must not have to find out by trying which endpoints there are.
func TestThePageOfTheConfigurationNamesTheEndpoints(t *testing.T) {
	text, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| endpoint |")
	table, _, _ = strings.Cut(table, "\n\n")
	var named []string
	for _, m := range regexp.MustCompile("`([A-Z]+ /[^`]*)`").FindAllStringSubmatch(table, -1) {
		named = append(named, strings.TrimSuffix(m[1], "NAME"))
	}
	var served []string
	for path, r := range (&adapter{}).routes() {
		for method := range r.methods {
			if method != "HEAD" {
				served = append(served, method+" "+path)
			}
		}
	}
	slices.Sort(named)
	slices.Sort(served)
	if !slices.Equal(named, served) {
		t.Errorf("docs/config.md names %q, served are %q", named, served)
	}
}
