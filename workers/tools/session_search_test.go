package tools

import (
	"context"
	"fmt"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// past stands in for the supervisor's conversations.
type past struct {
	hostv1.UnimplementedSearchServer
	discover *hostv1.DiscoverRequest
	scroll   *hostv1.ScrollRequest
}

var somePast = &hostv1.PastSession{Id: "s0", Title: "Plants", Source: "telegram", StartedAt: 1_767_225_600, Messages: 4}

func (p *past) Discover(_ context.Context, r *hostv1.DiscoverRequest) (*hostv1.DiscoverResponse, error) {
	p.discover = r
	m := &hostv1.PastMessage{Id: 7, Role: "user", Content: "water them"}
	return &hostv1.DiscoverResponse{Partial: true, IndexPercent: 40, Found: []*hostv1.Discovered{{Session: somePast, MatchId: 7, Snippet: ">>>water<<< them", Window: []*hostv1.PastMessage{m}}}}, nil
}

func (p *past) Scroll(_ context.Context, r *hostv1.ScrollRequest) (*hostv1.ScrollResponse, error) {
	p.scroll = r
	return &hostv1.ScrollResponse{Session: somePast, Before: 3}, nil
}

func (p *past) Read(_ context.Context, r *hostv1.ReadRequest) (*hostv1.ReadResponse, error) {
	if r.Session != "s0" {
		return nil, fmt.Errorf("session %s: %w", r.Session, ipc.ErrNotFound)
	}
	return &hostv1.ReadResponse{Session: somePast, Between: 9}, nil
}

func (p *past) Browse(context.Context, *hostv1.BrowseRequest) (*hostv1.BrowseResponse, error) {
	return &hostv1.BrowseResponse{Sessions: []*hostv1.PastSession{somePast}}, nil
}

func TestPastConversationsAreSearched(t *testing.T) {
	f := started(t, nil)
	var r sessionSearchResult
	f.ok("session_search", args{"query": "water", "sort": "newest", "role_filter": "user, tool"}, &r)
	if r.Mode != "discovery" || r.Count != 1 || !r.Sessions[0].Window[0].Match || r.Sessions[0].Started != "2026-01-01T00:00:00Z" || r.Note == "" {
		t.Errorf("%+v", r)
	}
	if d := f.past.discover; d.CurrentSession != "s1" || d.Limit != 3 || d.Sort != "newest" || len(d.Roles) != 2 {
		t.Errorf("asked for %v", d)
	}
	r = sessionSearchResult{}
	f.ok("session_search", args{"session_id": "s0", "around_message_id": 7}, &r)
	if r.Mode != "scroll" || f.past.scroll.Window != 5 || r.Sessions[0].Before != 3 {
		t.Errorf("%+v", r)
	}
	f.ok("session_search", args{"session_id": "s0"}, &r)
	if r.Mode != "read" || r.Sessions[0].Between != 9 {
		t.Errorf("%+v", r)
	}
	f.ok("session_search", args{}, &r)
	if r.Mode != "browse" || r.Sessions[0].SessionID != "s0" {
		t.Errorf("%+v", r)
	}
	f.fails("session_search", args{"session_id": "nobody"}, failed, "there is no such session")
	f.fails("session_search", args{"around_message_id": 7}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "needs the")
}
