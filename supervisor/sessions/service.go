// Package sessions answers what the `sessions` commands and the session_search tool ask about conversations.
//
// Rules: it decides nothing about turns, it reads and changes what the store holds of sessions, and refuses to touch one
// with a running turn. The same service is behind the control socket of a running supervisor and, where none runs, in the
// process of the command itself. Every answer is bounded.
package sessions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	defaultList   = 20
	maxList       = 10_000
	defaultShow   = 50
	maxShow       = 2000
	showText      = 16 << 10 // characters of a message that are shown
	maxNames      = 1000     // sessions that one call may name
	pruneInactive = 90 * 24 * time.Hour
	pruneUnused   = 30 * 24 * time.Hour
)

// A Service is the control service Sessions over one store.
type Service struct {
	controlv1.UnimplementedSessionsServer
	store *store.State
	// notHeld fails if other processes have the store's files open.
	notHeld func() error
}

// New returns the service. notHeld is asked before much is deleted; its error lists the processes.
func New(s *store.State, notHeld func() error) *Service { return &Service{store: s, notHeld: notHeld} }

// kinds maps what the store says to what a caller decides on.
var kinds = []struct{ from, to error }{
	{store.ErrNotFound, ipc.ErrNotFound}, {store.ErrExists, ipc.ErrExists}, {store.ErrInvalid, ipc.ErrInvalid},
	{store.ErrInUse, ipc.ErrRefused}, {store.ErrQueueFull, ipc.ErrBusy}, {store.ErrBusy, ipc.ErrBusy}, {store.ErrReadTooLong, ipc.ErrBusy}, {store.ErrDiskFull, ipc.ErrFull},
	{store.ErrReadOnly, ipc.ErrRefused}, {store.ErrFailed, ipc.ErrRefused}, {store.ErrClosed, ipc.ErrGone},
}

func kind(err error) error {
	for _, k := range kinds {
		if errors.Is(err, k.from) {
			return ipc.WithKind(err, k.to)
		}
	}
	return err
}

// unknown says how to find the id of a session that is not there.
func unknown(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("%w\nfind its id with: hermes-supervisor sessions list", err)
	}
	return kind(err)
}

// List lists sessions, the newest activity first.
func (s *Service) List(ctx context.Context, r *controlv1.ListSessionsRequest) (*controlv1.ListSessionsResponse, error) {
	f := filterOf(r.Filter)
	f.Archived, f.Prefix, f.Limit = r.Archived, r.Prefix, bounded(r.Limit, defaultList, maxList)
	list, more, err := s.store.ListSessions(ctx, f)
	if err != nil {
		return nil, kind(err)
	}
	return &controlv1.ListSessionsResponse{Sessions: infos(list), More: uint64(more)}, nil
}

// Show returns one session with its newest messages.
func (s *Service) Show(ctx context.Context, r *controlv1.ShowSessionRequest) (*controlv1.ShowSessionResponse, error) {
	i, err := s.store.FindSession(ctx, r.Session)
	if err != nil {
		return nil, unknown(err)
	}
	_, last, before, err := s.store.Ends(ctx, i.ID, 0, bounded(r.Limit, defaultShow, maxShow), nil)
	if err != nil {
		return nil, kind(err)
	}
	out := &controlv1.ShowSessionResponse{Session: info(i), Earlier: uint64(before)}
	for _, m := range last {
		message := &controlv1.SessionMessage{Id: m.ID, Role: m.Role, Content: cut(m.Content, showText), ToolName: m.ToolName, At: unix(m.Time)}
		for _, c := range m.ToolCalls {
			message.ToolCalls = append(message.ToolCalls, cut(c.Name+" "+c.Arguments, showText))
		}
		out.Messages = append(out.Messages, message)
	}
	return out, nil
}

// Search looks through all messages.
func (s *Service) Search(ctx context.Context, r *controlv1.SearchSessionsRequest) (*controlv1.SearchSessionsResponse, error) {
	if !slices.Contains([]string{"", "newest", "oldest"}, r.Sort) {
		return nil, fmt.Errorf("sort %q: %w: it is newest or oldest", r.Sort, ipc.ErrInvalid)
	}
	q := store.Search{Text: r.Query, Source: r.Source, Roles: r.Roles, Sort: r.Sort, Substring: r.Substring, Limit: bounded(r.Limit, defaultList, maxList)}
	if r.Session != "" {
		i, err := s.store.FindSession(ctx, r.Session)
		if err != nil {
			return nil, unknown(err)
		}
		q.SessionID = i.ID
	}
	found, err := s.store.Search(ctx, q)
	if err != nil {
		return nil, kind(err)
	}
	out := &controlv1.SearchSessionsResponse{Partial: found.Partial, IndexTotal: found.Index.Total, IndexDone: found.Index.Indexed}
	for _, h := range found.Hits {
		out.Hits = append(out.Hits, &controlv1.SearchHit{
			MessageId: h.MessageID, Session: h.SessionID, Title: h.Title, Source: h.Source, Role: h.Role, ToolName: h.ToolName, Snippet: h.Snippet, At: unix(h.Time),
		})
	}
	return out, nil
}

// Rename gives a session a title.
func (s *Service) Rename(ctx context.Context, r *controlv1.RenameSessionRequest) (*controlv1.SessionInfo, error) {
	i, err := s.store.Rename(ctx, r.Session, r.Title)
	if err != nil {
		return nil, unknown(err)
	}
	return info(i), nil
}

// Stats counts.
func (s *Service) Stats(ctx context.Context, _ *controlv1.SessionStatsRequest) (*controlv1.SessionStatsResponse, error) {
	st, err := s.store.Stats(ctx)
	if err != nil {
		return nil, kind(err)
	}
	out := &controlv1.SessionStatsResponse{
		Sessions: st.Sessions, Messages: st.Messages, Archived: st.Archived, Bytes: st.Bytes, Tokens: st.Tokens, CostUsd: st.Cost,
		IndexTotal: st.Index.Total, IndexDone: st.Index.Indexed,
	}
	for _, o := range st.Sources {
		out.Sources = append(out.Sources, &controlv1.SourceStats{Source: o.Source, Sessions: o.Sessions, Messages: o.Messages})
	}
	return out, nil
}

func bounded(asked uint32, standard, most int) int {
	if asked == 0 {
		return standard
	}
	return int(min(asked, uint32(most)))
}

func filterOf(f *controlv1.SessionFilter) store.Selection {
	if f == nil {
		return store.Selection{}
	}
	return store.Selection{
		Source: f.Source, EndReason: f.EndReason, Provider: f.Provider, User: f.User, ChatID: f.ChatId, ChatType: f.ChatType, Branch: f.Branch,
		Title: f.Title, Cwd: f.Cwd, Model: f.Model,
		ActiveBefore: instant(f.ActiveBefore), ActiveAfter: instant(f.ActiveAfter), StartedBefore: instant(f.StartedBefore), StartedAfter: instant(f.StartedAfter),
		MinMessages: f.MinMessages, MaxMessages: f.MaxMessages, MinTokens: f.MinTokens, MaxTokens: f.MaxTokens,
		MinToolCalls: f.MinToolCalls, MaxToolCalls: f.MaxToolCalls, MinCost: f.MinCost, MaxCost: f.MaxCost,
	}
}

func infos(list []store.SessionInfo) (out []*controlv1.SessionInfo) {
	for _, i := range list {
		out = append(out, info(i))
	}
	return out
}

func info(i store.SessionInfo) *controlv1.SessionInfo {
	return &controlv1.SessionInfo{
		Id: i.ID, Source: i.Source, Title: i.Title, Preview: i.Preview, Cwd: i.Cwd, Model: i.Model, StartedAt: unix(i.StartedAt),
		LastActive: unix(i.LastActive), EndedAt: unix(i.EndedAt), EndReason: i.EndReason, Messages: int64(i.Messages), ToolCalls: int64(i.ToolCalls),
		Tokens: i.Tokens, CostUsd: i.Cost, Archived: i.Archived, Pinned: i.Pinned, Parent: i.Parent, ChatId: i.ChatID, User: i.UserID, Running: i.Running,
	}
}

// unix is a time in seconds, 0 for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

func instant(seconds float64) time.Time {
	if seconds == 0 || math.IsNaN(seconds) || math.Abs(seconds) > 1e11 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// cut returns at most n characters of a text.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for i := range text {
		if n--; n < 0 {
			return text[:i] + "…"
		}
	}
	return text
}
