package cli

import "strings"

// asciiOnly says whether pictures are drawn in ASCII: where the locale is not UTF-8, by the rules of POSIX (the first of
// LC_ALL, LC_CTYPE and LANG that is set decides, and none is the C locale), and on terminals without a font for more.
func asciiOnly(getenv func(string) string) bool {
	switch getenv("TERM") {
	case "dumb", "linux":
		return true
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return true
}
