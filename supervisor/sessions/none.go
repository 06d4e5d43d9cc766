package sessions

import (
	"context"
	"fmt"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// none is the service of a home in which nothing was ever said: lists are empty, and no session is found.
type none struct {
	controlv1.UnimplementedSessionsServer
	home string
}

// None returns the service of a home that has no store. It makes none.
func None(home string) controlv1.SessionsServer { return none{home: home} }

func (n none) missing() error {
	return fmt.Errorf("home %s has no sessions yet: %w\nstart one with: hermes-supervisor chat", n.home, ipc.ErrNotFound)
}

// named is missing if sessions are named.
func (n none) named(sessions []string) error {
	if len(sessions) > 0 {
		return n.missing()
	}
	return nil
}

func (n none) List(context.Context, *controlv1.ListSessionsRequest) (*controlv1.ListSessionsResponse, error) {
	return &controlv1.ListSessionsResponse{}, nil
}

func (n none) Show(context.Context, *controlv1.ShowSessionRequest) (*controlv1.ShowSessionResponse, error) {
	return nil, n.missing()
}

func (n none) Search(context.Context, *controlv1.SearchSessionsRequest) (*controlv1.SearchSessionsResponse, error) {
	return &controlv1.SearchSessionsResponse{}, nil
}

func (n none) Rename(context.Context, *controlv1.RenameSessionRequest) (*controlv1.SessionInfo, error) {
	return nil, n.missing()
}

func (n none) Archive(_ context.Context, r *controlv1.ChangeSessionsRequest) (*controlv1.ChangeSessionsResponse, error) {
	return &controlv1.ChangeSessionsResponse{}, n.named(r.Sessions)
}

func (n none) Delete(context.Context, *controlv1.ChangeSessionsRequest) (*controlv1.ChangeSessionsResponse, error) {
	return nil, n.missing()
}

func (n none) Prune(context.Context, *controlv1.ChangeSessionsRequest) (*controlv1.ChangeSessionsResponse, error) {
	return &controlv1.ChangeSessionsResponse{}, nil
}

func (n none) Stats(context.Context, *controlv1.SessionStatsRequest) (*controlv1.SessionStatsResponse, error) {
	return &controlv1.SessionStatsResponse{}, nil
}

func (n none) Select(_ context.Context, r *controlv1.ExportSessionsRequest) (*controlv1.ListSessionsResponse, error) {
	return &controlv1.ListSessionsResponse{}, n.named(r.Sessions)
}

func (n none) Export(r *controlv1.ExportSessionsRequest, _ controlv1.Sessions_ExportServer) error {
	return n.named(r.Sessions)
}
