package cli

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

func TestDocument(t *testing.T) {
	for want, m := range map[string]proto.Message{
		`{"queued":9007199254740993,"running":0,"parked":-1}`:                                                   &controlv1.TurnCounts{Queued: 1<<53 + 1, Parked: -1},
		`{"code":-1,"signal":"a\"b\u003c","cause":"","message":"","at":1764600000.25,"pid":0,"by":"","log":[]}`: &controlv1.ExitStatus{Code: -1, Signal: `a"b<`, At: 1764600000.25},
		`{"id":0,"at":null,"kind":"","worker":"","pid":0,"turn_id":"","message":"","fields":{"a":"1","b":"2"}}`: &controlv1.Event{At: math.NaN(), Fields: map[string]string{"b": "2", "a": "1"}},
		`{"kind":"timeout","message":""}`:                                             &toolv1.ToolError{Kind: toolv1.ToolError_KIND_TIMEOUT},
		`{"outcome":"unspecified","text":"","error":"","session_id":"","usage":null}`: &turnv1.Final{},
		`{"outcome":"99","text":"","error":"","session_id":"","usage":null}`:          &turnv1.Final{Outcome: 99},
		`{"seq":1,"turn_id":"t","notice":{"text":"x"}}`:                               &turnv1.TurnEvent{Seq: 1, TurnId: "t", Event: &turnv1.TurnEvent_Notice{Notice: &turnv1.Notice{Text: "x"}}},
		`{"chunk":"aGk="}`: &toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Chunk{Chunk: []byte("hi")}},
		`{}`:               &controlv1.StatusRequest{},
	} {
		if got := string(document(m)); got != want {
			t.Errorf("%T:\n got %s\nwant %s", m, got, want)
		}
	}
}
