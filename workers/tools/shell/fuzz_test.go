package shell

import (
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
)

// FuzzCommand holds for every text: no panic, nothing unreadable is allowed, nothing refused has no reason, and
// what is in a string that is evaluated is judged no milder than by itself.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{
		`ls -la | wc -l`, `rm -rf /`, `{rm,-rf,/}`, `x=${y:-$(echo a)} b <(c) > d`, "cat <<E\n$(x)\nE", `find . -exec rm {} \;`, `sudo env -S 'a b' timeout 5 c`,
		`case $x in a|b) c;; esac`, `f() { f | f & }; f`, `[[ a =~ b ]] && ((c++))`, `echo ${a[1]} ${b//c/d} ${!e@}`, `git -c a=b push -f`, `sed 's/a/b/w c' d`, `awk '{print | "x"}'`, "`a \\`b\\``", `$'\x72m' "\$(a)" 'b'`,
		`xargs -I% sh -c "%"`, `trap "a" EXIT`, `a &> b <<< c >| d <> e`, `if`, `"`, `coproc a { b; }`, `select x in a; do b; done`, `time ! a`, `printf -v 'a[$(b)]' c`, `dd if=~/x of=/dev/sda`, `{1..9999999}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := judge().Command(text)
		if got.Verdict < guard.Allow || got.Verdict > guard.Refuse || (got.Verdict != guard.Allow) != (got.Reason != "") {
			t.Fatalf("%q: %v with the reason %q", text, got.Verdict, got.Reason)
		}
		if _, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), ""); err != nil && got.Verdict == guard.Allow {
			t.Fatalf("%q is allowed but cannot be read: %v", text, err)
		}
		quoted, err := syntax.Quote(text, syntax.LangBash)
		if err != nil || len(quoted) > maxText/2 {
			return
		}
		if inner := judge().Command("eval " + quoted); inner.Verdict < got.Verdict || inner.Verdict == guard.Allow {
			t.Fatalf("%q is judged %v (%s), but %v (%s) in eval", text, got.Verdict, got.Reason, inner.Verdict, inner.Reason)
		}
	})
}
