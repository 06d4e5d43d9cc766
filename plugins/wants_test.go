package plugins

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

func TestWhatAPluginAsksForIsThatOfAllItsTools(t *testing.T) {
	type none struct{}
	f := func(context.Context, *Call, none) (string, error) { return "", nil }
	s := NewServer("shop", "1.0.0")
	t.Cleanup(s.Close)
	err := s.Start(Env{},
		Func("buy", "d", f, UsesSecret("KEY"), ConnectsTo(443)),
		Func("look", "d", f, UsesSecret("KEY", "OTHER"), ConnectsTo(80, 443), ReadsFiles("/srv/list")))
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Describe(t.Context(), nil)
	want := &toolv1.Wants{Secrets: []string{"KEY", "OTHER"}, ReadPaths: []string{"/srv/list"}, ConnectPorts: []uint32{80, 443}}
	if err != nil || !proto.Equal(d.Wants, want) {
		t.Errorf("it asks for %v, %v", d.GetWants(), err)
	}
}

func TestAPluginThatAsksForNothingSaysNothing(t *testing.T) {
	if w := allWants([]Tool{Func("a", "d", func(context.Context, *Call, struct{}) (string, error) { return "", nil })}); w != nil {
		t.Errorf("%v", w)
	}
}

func TestARelativePathIsAMistakeInTheProgram(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it was taken")
		}
	}()
	Func("a", "d", func(context.Context, *Call, struct{}) (string, error) { return "", nil }, ReadsFiles("list"))
}
