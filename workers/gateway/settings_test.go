package gateway

import (
	"strings"
	"testing"
	"time"
)

func TestSettings(t *testing.T) {
	type known struct {
		Listen string   `json:"listen"`
		Runs   int      `json:"runs"`
		Wait   Duration `json:"wait"`
	}
	for _, c := range []struct {
		name  string
		given Settings
		want  known
		err   string
	}{
		{"defaults stay", Settings{}, known{Listen: "here", Wait: Duration(time.Second)}, ""},
		{"nil", nil, known{Listen: "here", Wait: Duration(time.Second)}, ""},
		{"all", Settings{"listen": "there", "runs": 3, "wait": "1m30s"}, known{"there", 3, Duration(90 * time.Second)}, ""},
		{"seconds", Settings{"wait": 2.5}, known{Listen: "here", Wait: Duration(2500 * time.Millisecond)}, ""},
		{"unknown key", Settings{"lisen": "x"}, known{}, `unknown field "lisen"`},
		{"wrong type", Settings{"runs": "many"}, known{}, "runs"},
		{"no duration", Settings{"wait": "soon"}, known{}, `"soon" is not a duration`},
		{"no duration at all", Settings{"wait": []any{}}, known{}, "[] is not a duration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := known{Listen: "here", Wait: Duration(time.Second)}
			err := c.given.own().Decode(&got)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("Decode() = %v, want an error with %q", err, c.err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("Decode() = %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestKeysOfTheFrameAreNotTheAdapters(t *testing.T) {
	s := Settings{"enabled": true, "send_from": []string{"/x"}, "listen": "x"}
	if own := s.own(); len(own) != 1 || own["listen"] != "x" {
		t.Errorf("own() = %v", own)
	}
}
