package ipc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	_ "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	_ "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	_ "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	_ "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/kanban/v1"
	_ "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	_ "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// methods returns every method of every service of ours, by its full name, and whether it streams.
func methods(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "hermes.") {
			return true
		}
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				found["/"+string(s.FullName())+"/"+string(m.Name())] = m.IsStreamingClient() || m.IsStreamingServer()
			}
		}
		return true
	})
	if len(found) < 30 {
		t.Fatalf("only %d methods found: are the generated packages linked?", len(found))
	}
	return found
}

func TestEveryUnaryMethodHasADeadlineAndEveryStreamSaysWhatBoundsIt(t *testing.T) {
	all := methods(t)
	for name, streaming := range all {
		d, unary := deadlines[name]
		_, stream := streams[name]
		switch {
		case streaming && (!stream || unary):
			t.Errorf("%s streams: it belongs in streams, not in deadlines", name)
		case !streaming && (stream || d <= 0):
			t.Errorf("%s has no deadline", name)
		}
	}
	for name := range deadlines {
		if _, ok := all[name]; !ok {
			t.Errorf("deadline for %s, which does not exist", name)
		}
	}
	for name := range streams {
		if _, ok := all[name]; !ok && strings.HasPrefix(name, "/hermes.") {
			t.Errorf("stream %s does not exist", name)
		}
	}
}

func TestAccessTableNamesEveryHostAndControlMethodAndNoOther(t *testing.T) {
	all := methods(t)
	for name := range all {
		served := strings.HasPrefix(name, "/hermes.host.") || strings.HasPrefix(name, "/hermes.control.")
		if _, listed := access[name]; listed != served {
			t.Errorf("%s: served by the supervisor %v, in the access table %v", name, served, listed)
		}
	}
	for name := range access {
		if _, ok := all[name]; !ok {
			t.Errorf("access to %s, which does not exist", name)
		}
	}
}

func TestRolesReachOnlyWhatTheyNeed(t *testing.T) {
	for _, c := range []struct {
		role, method string
		want         bool
	}{
		{RoleAgent, "/hermes.host.v1.Turns/Append", true},
		{RoleGateway, "/hermes.host.v1.Turns/Append", false},
		{RoleGateway, "/hermes.host.v1.Inbox/Accept", true},
		{RoleAgent, "/hermes.host.v1.Inbox/Accept", false},
		{RolePlugin, "/hermes.host.v1.Turns/Load", false},
		{RolePlugin, "/hermes.host.v1.Config/Secret", true},
		{RoleKanban, "/hermes.host.v1.Boards/Unseen", true},
		{RoleOperator, "/hermes.control.v1.Control/Status", true},
		{RoleAgent, "/hermes.control.v1.Control/Status", false},
		{"", "/hermes.control.v1.Control/Status", false},
		{RoleOperator, "/hermes.control.v1.Control/NoSuchMethod", false},
	} {
		if got := Allowed(c.role, c.method); got != c.want {
			t.Errorf("Allowed(%q, %s) = %v, want %v", c.role, c.method, got, c.want)
		}
	}
}
