package control

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// noOperations is there so that the service is.
type noOperations struct{}

func (noOperations) Series(string, time.Time) (*controlv1.SeriesResponse, error) { return nil, nil }
func (noOperations) Profile(context.Context, string, *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	return nil, nil
}
func (noOperations) Pause() int                                          { return 0 }
func (noOperations) Resume() bool                                        { return false }
func (noOperations) Reload(context.Context) ([]*controlv1.Change, error) { return nil, nil }

func TestAHeartBeatsWhileTheSocketServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	server := Serve(l, Services{Workers: &parts{}, Hub: &parts{}, Operations: noOperations{}}, hclog.NewNullLogger())
	heart, err := NewHeart(path)
	if err != nil {
		t.Fatal(err)
	}
	defer heart.Close()
	if err := heart.Beat(t.Context()); err != nil || heart.Progress() != 1 {
		t.Errorf("%v, %d beats", err, heart.Progress())
	}
	server.Close()
	if err := heart.Beat(t.Context()); err == nil || heart.Progress() != 1 {
		t.Errorf("after the end: %v, %d beats", err, heart.Progress())
	}
}

// A socket on which nobody accepts any more takes connections into its backlog and looks well from outside.
func TestAHeartStandsStillWhenNobodyAccepts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	heart, err := NewHeart(path)
	if err != nil {
		t.Fatal(err)
	}
	defer heart.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := heart.Beat(ctx); err == nil || heart.Progress() != 0 {
		t.Errorf("%v, %d beats", err, heart.Progress())
	}
}
