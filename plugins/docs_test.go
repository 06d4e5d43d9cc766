package plugins

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestANewcomerCanFollowTheDocumentation does in a clean directory what docs/plugins.md says, to the letter.
func TestANewcomerCanFollowTheDocumentation(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a plugin from nothing")
	}
	text, err := os.ReadFile("../docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, runs := 0, 0
	for _, block := range regexp.MustCompile("(?s)<!-- (file: \\S+|run) -->\n```\\w+\n(.*?)```\n").FindAllSubmatch(text, -1) {
		if name, ok := strings.CutPrefix(string(block[1]), "file: "); ok {
			files++
			if err := os.WriteFile(filepath.Join(dir, name), block[2], 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		runs++
		cmd := exec.Command("sh", "-exc", string(block[2]))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CHECKOUT="+checkout)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v\n%s", block[2], err, out)
		}
	}
	if files != 2 || runs != 2 {
		t.Errorf("%d files and %d blocks of commands were found", files, runs)
	}
}
