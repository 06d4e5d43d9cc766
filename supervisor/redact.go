package supervisor

import "strings"

// minSecret is the shortest value that is searched for in log lines: a shorter one is no secret, and replacing "1" or
// "true" would make every line unreadable.
const minSecret = 8

// redactor returns a function that replaces every value in a text, or nil if there are none. Values are given longest
// first, so that one that is part of another does not leave the rest of it behind.
func redactor(values []string) func(string) string {
	var pairs []string
	for _, v := range values {
		if len(v) >= minSecret {
			pairs = append(pairs, v, "[redacted]")
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return strings.NewReplacer(pairs...).Replace
}
