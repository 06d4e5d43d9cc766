package supervisor

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
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

// A key of the environment is in no .env. What a worker has got it may log, in whatever way its library writes it.
func TestASecretOfTheEnvironmentIsOneForTheLogOnceAWorkerHasIt(t *testing.T) {
	const key = `p&ss"w<ord> 7/8`
	t.Setenv("HS_TEST_KEY", key)
	c, err := config.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &redaction{}
	host := &hostServices{secrets: func() config.Secrets { return c.Secrets }, given: func(v string) { r.add([]string{v}) }}
	ctx := ipc.WithIdentity(t.Context(), ipc.Identity{Worker: "agent-1", Secrets: []string{"HS_TEST_KEY"}})
	if got, err := host.Secret(ctx, &hostv1.SecretRequest{Name: "HS_TEST_KEY"}); err != nil || got.Value != key {
		t.Fatal(got, err)
	}
	inJSON, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{key, string(inJSON), "GET /v1?key=" + url.QueryEscape(key), "GET /" + url.PathEscape(key)} {
		if got := r.text("refused: " + line); strings.Contains(got, "ord") || !strings.Contains(got, "[redacted]") {
			t.Errorf("the log holds %s", got)
		}
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
