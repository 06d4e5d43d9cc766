package catalogue

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func sample() map[string]Entry {
	return map[string]Entry{
		"weather": {
			Name: "weather", Version: "0.1.0", SDK: "0.1.0", SHA256: strings.Repeat("ab", 32), Size: 7, Source: "/src/weather",
			Added: noon, State: Enabled, Since: noon,
			Tools: []Tool{{
				Name: "forecast", Description: "Weather <forecast>.", Schema: json.RawMessage(`{"type": "object", "properties": {}}`),
				ReadOnly: true, TimeoutMS: 1000, MaxTimeoutMS: 60000,
			}},
			Wants:   Permissions{Secrets: []string{"WEATHER_KEY"}, Connect: []uint16{443}},
			Granted: Permissions{Connect: []uint16{443}},
		},
		"raw": {
			Name: "raw", Version: "1", SHA256: strings.Repeat("0", 64), Size: 1, Added: noon, Plain: true, State: Quarantined,
			Reason: "it died six times", Since: noon, Tools: []Tool{{Name: "raw_tool", Description: "d", Schema: json.RawMessage(`{}`)}},
		},
	}
}

func TestTheLockFileLooksLikeThis(t *testing.T) {
	got := format(sample())
	golden := filepath.Join("testdata", "plugins.lock")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s", got)
	}
	list, err := parse(want)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	again := map[string]Entry{}
	for _, e := range list {
		again[e.Name] = e
	}
	if !bytes.Equal(format(again), want) {
		t.Errorf("read and written it is\n%s", format(again))
	}
}

func TestALockFileThatIsNotUnderstoodIsRefused(t *testing.T) {
	good := string(format(sample()))
	for name, c := range map[string]struct{ old, new, want string }{
		"newer":          {`"version": 1,`, `"version": 2,`, "version 2"},
		"unknown key":    {`"size": 7,`, `"size": 7, "sandbox": "off",`, "sandbox"},
		"cut off":        {"]\n}", "", "unexpected"},
		"something more": {"]\n}\n", "]\n}\n{}", "after top-level value"},
		"granted more": {`"connect": [
          443
        ]
      },
      "state": "enabled"`, `"connect": [443], "read": ["/home"]},
      "state": "enabled"`, "changed by something else"},
		"other sum":  {strings.Repeat("ab", 32), strings.Repeat("cd", 32), "changed by something else"},
		"odd sum":    {strings.Repeat("ab", 32), "../../bin/sh", "hexadecimal"},
		"odd name":   {`"name": "raw"`, `"name": "../raw"`, "plugin name"},
		"twice":      {`"name": "raw"`, `"name": "weather"`, "twice"},
		"odd path":   {`"source": ""`, `"source": "", "granted": {"read": ["../x"]}`, "absolute"},
		"odd state":  {`"state": "enabled"`, `"state": "on"`, "none of"},
		"tool clash": {`"name": "raw_tool"`, `"name": "forecast"`, "is there already"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := parse([]byte(text)); !errors.Is(err, ErrLockFile) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzLockFile holds that nothing in a lock file ends the program, and that what is taken is written as it was read.
func FuzzLockFile(f *testing.F) {
	f.Add(format(sample()))
	f.Add(format(map[string]Entry{}))
	f.Add([]byte(`{"version":1,"plugins":[{"name":"a"}]}`))
	f.Add([]byte(`{"version":1,"sum":"","plugins":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parse(text)
		if err != nil {
			if !errors.Is(err, ErrLockFile) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		entries := map[string]Entry{}
		for _, e := range list {
			if filepath.Base(e.SHA256) != e.SHA256 || filepath.Base(e.Name) != e.Name {
				t.Fatalf("names that lead elsewhere: %q, %q", e.SHA256, e.Name)
			}
			entries[e.Name] = e
		}
		again, err := parse(format(entries))
		if err != nil {
			t.Fatalf("what was taken cannot be read after it was written: %v", err)
		}
		second := map[string]Entry{}
		for _, e := range again {
			second[e.Name] = e
		}
		if len(again) != len(list) || !maps.EqualFunc(entries, second, func(a, b Entry) bool { return a.SHA256 == b.SHA256 }) {
			t.Errorf("%d entries became %d", len(list), len(again))
		}
	})
}
