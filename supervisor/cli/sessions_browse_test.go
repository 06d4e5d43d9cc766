package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// deleting is a service that deletes all but what runs.
type deleting struct {
	controlv1.SessionsClient
	gone []string
}

func (d *deleting) Delete(_ context.Context, r *controlv1.ChangeSessionsRequest, _ ...grpc.CallOption) (*controlv1.ChangeSessionsResponse, error) {
	if r.Sessions[0] == "running" {
		return nil, fmt.Errorf("session running is in use: %w", ipc.ErrRefused)
	}
	d.gone = append(d.gone, r.Sessions...)
	return &controlv1.ChangeSessionsResponse{Sessions: []*controlv1.SessionInfo{{Id: r.Sessions[0]}}}, nil
}

func TestAPersonBrowsesSessions(t *testing.T) {
	for name, c := range map[string]struct{ typed, chosen, gone, told string }{
		"nothing leaves":                      {"\n", "", "[]", ""},
		"no more input leaves":                {"garden", "", "[]", ""},
		"a number opens":                      {"2\n", "running", "[]", ""},
		"a text looks for":                    {"Garden\n1\n", "old", "[]", ""},
		"nothing shows all again":             {"garden\n\n2\n", "running", "[]", ""},
		"what is not there is told":           {"9\n\n", "", "[]", "there is no 9"},
		"text that nothing has":               {"xyz\n1\n\n\n", "", "[]", "there is no 1"},
		"d deletes after a yes":               {"d 1\nyes\n1\n", "running", "[new]", ""},
		"d deletes nothing after a no":        {"d 1\n\n1\n", "new", "[]", ""},
		"what cannot be deleted ends nothing": {"d 2\ny\n2\n", "running", "[]", "in use"},
		"what was looked for stays after a d": {"terminal\nd 2\n1\n", "new", "[]", "there is no 2"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			service := &deleting{}
			b := &browser{client: service, program: &program{streams: streams{in: strings.NewReader(c.typed), out: &out, err: &errs}},
				list: []*controlv1.SessionInfo{{Id: "new", Title: "News", Source: "terminal"}, {Id: "running", Preview: "what runs", Source: "cli"}, {Id: "old", Title: "The garden", Source: "cli"}}}
			chosen, err := b.choose(t.Context())
			if err != nil || chosen != c.chosen || fmt.Sprint(service.gone) != c.gone || !strings.Contains(errs.String(), c.told) {
				t.Errorf("chosen %q, deleted %v, %v; told:\n%s%s", chosen, service.gone, err, errs.String(), out.String())
			}
		})
	}
}
