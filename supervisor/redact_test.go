package supervisor

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/event"
)

// A panic of a worker or the error of a client library may name the address with the token in it.
func TestNoSecretGetsIntoTheJournal(t *testing.T) {
	s, err := store.OpenTelemetry(t.Context(), filepath.Join(t.TempDir(), "supervisor.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	const token = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
	j := event.NewJournal(redactedEvents{s, redactor([]string{token})}, hclog.NewNullLogger(), time.Now)
	fields := map[string]string{"log": "panic: Get https://host/bot" + token + "/getMe", "code": "2"}
	j.Record(store.Event{Kind: "worker_exited", Message: "bot" + token + " is refused", Fields: fields})
	j.Close()
	rows, err := s.Events(t.Context(), store.EventFilter{})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	want := map[string]string{"log": "panic: Get https://host/bot[redacted]/getMe", "code": "2"}
	if got := rows[0]; got.Message != "bot[redacted] is refused" || !reflect.DeepEqual(got.Fields, want) {
		t.Errorf("the journal holds %+v", got)
	}
	if fields["log"] == want["log"] {
		t.Error("the map of who recorded it was changed")
	}
}

func TestWithoutSecretsEventsAreKeptAsTheyAre(t *testing.T) {
	s, err := store.OpenTelemetry(t.Context(), filepath.Join(t.TempDir(), "supervisor.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := (redactedEvents{s, (&redaction{}).text}).Append(t.Context(), store.Event{Kind: "k", Message: "as it is"}); err != nil {
		t.Fatal(err)
	}
	rows, err := s.Events(t.Context(), store.EventFilter{})
	if err != nil || len(rows) != 1 || rows[0].Message != "as it is" {
		t.Error(rows, err)
	}
}
