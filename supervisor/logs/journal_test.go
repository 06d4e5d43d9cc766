package logs

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
)

func TestALineHasItsWorkerPIDAndTurnAsFields(t *testing.T) {
	l := Line{
		Time: time.Unix(0, 0), Worker: "agent-1", PID: 42, Level: hclog.Warn, Stream: StreamLog, Message: "slow\nprovider",
		Fields: []Field{{"turn", "t-1"}, {"api key-name", "X"}, {"worker", "evil"}, {"", "empty"}, {"__", "none"}},
	}
	want := JournalEntry{
		Message: `slow\nprovider turn=t-1 api key-name=X worker=evil =empty __=none`, Level: hclog.Warn,
		Fields: map[string]string{
			"SYSLOG_IDENTIFIER": "hermes-supervisor", "HERMES_WORKER": "agent-1", "HERMES_PID": "42", "HERMES_TURN": "t-1",
			"HERMES_STREAM": "log", "HERMES_API_KEY_NAME": "X",
		},
	}
	if diff := cmp.Diff(want, l.Journal()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatTheSupervisorSaysOfAWorkerIsFoundWithIt(t *testing.T) {
	l := Line{Worker: Supervisor, PID: 1, Level: hclog.Info, Stream: StreamLog, Message: "worker_ready", Fields: []Field{{"worker", "tools"}, {"pid", "42"}}}
	if f := l.Journal().Fields; f["HERMES_WORKER"] != "tools" || f["HERMES_PID"] != "42" {
		t.Errorf("fields %v", f)
	}
}

// The journal's daemon may be restarted: what it does not take goes to stderr, which systemd holds for it.
func TestWhatTheJournalRefusesIsWritten(t *testing.T) {
	var out bytes.Buffer
	var taken []string
	b := NewBook(Options{Out: &out, Journal: func(e JournalEntry) error {
		if strings.Contains(e.Message, "second") {
			return errors.New("connection refused")
		}
		taken = append(taken, e.Message)
		return nil
	}})
	for _, text := range []string{"first", "second", "third"} {
		b.Add(Line{Worker: "w", Level: hclog.Info, Stream: StreamLog, Message: text})
	}
	b.Close()
	if !cmp.Equal(taken, []string{"first", "third"}) || !strings.Contains(out.String(), "second") || strings.Contains(out.String(), "first") {
		t.Errorf("taken %q, written %q", taken, out.String())
	}
}

func FuzzJournalName(f *testing.F) {
	f.Add("turn_id")
	f.Fuzz(func(t *testing.T, key string) {
		name := journalName(key)
		if strings.ContainsFunc(name, func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }) || len(name) > 64 {
			t.Errorf("%q: %q", key, name)
		}
	})
}
