package worker

import (
	"slices"
	"testing"
)

func TestAWorkerInheritsWhatItMayAndNoPasswordOfAProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://ann:sesame@proxy:3128")
	t.Setenv("NO_PROXY", "example.org")
	t.Setenv("OPENAI_API_KEY", "k")
	env := environ(Spec{}, mark{}, nil)
	if !slices.Contains(env, "NO_PROXY=example.org") {
		t.Errorf("NO_PROXY is not passed: %q", env)
	}
	for _, v := range env {
		if v == "HTTPS_PROXY=http://ann:sesame@proxy:3128" || v == "OPENAI_API_KEY=k" {
			t.Errorf("passed: %s", v)
		}
	}
}
