package worker

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// passed names the variables that a worker inherits. Everything else of the supervisor's environment stays with it: what
// systemd says to it alone, and whatever secret was exported in the shell that started it. Names ending in * are prefixes.
var passed = []string{
	"PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "ALL_PROXY", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
}

// environ builds a worker's environment: the allowed part of the supervisor's, what go-plugin wants, our own, and last,
// so that it wins, what the Spec says.
func environ(s Spec, m mark, handshake []string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if slices.ContainsFunc(passed, func(p string) bool { return matches(p, name) }) && !hasPassword(v) {
			env = append(env, v)
		}
	}
	env = append(env, handshake...)
	env = append(env, liveness, MarkEnv+"="+m.String())
	if s.Limits.Memory > 0 {
		// The collector works harder before the limit is reached; a tenth is left for stacks and what is not Go's.
		env = append(env, fmt.Sprintf("GOMEMLIMIT=%d", s.Limits.Memory/10*9))
	}
	return append(env, s.Env...)
}

// hasPassword says whether a variable is a proxy with user and password. Whoever needs that one asks for it as a secret.
func hasPassword(v string) bool {
	name, value, _ := strings.Cut(v, "=")
	return strings.HasSuffix(strings.ToUpper(name), "_PROXY") && strings.Contains(value, "@")
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
