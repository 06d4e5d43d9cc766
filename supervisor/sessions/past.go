package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// What the session_search tool gets is as much as a model can use; the numbers are Hermes'.
const (
	scanHits      = 300 // messages among which conversations are looked for
	defaultFound  = 3
	maxFound      = 10
	aroundHit     = 5
	bookend       = 3 // messages from each end of a found session
	windowText    = 4000
	bookendText   = 1200
	defaultWindow = 5
	maxWindow     = 20
	readFirst     = 20
	readLast      = 10
	defaultBrowse = 10
	maxRoles      = 8
)

// unseen are the sources whose sessions are no conversations of a person.
var unseen = []string{"subagent", "tool"}

// conversations is what Past asks of a store. Each call sees it at a later moment: what one has named may be gone for the next.
type conversations interface {
	Search(context.Context, store.Search) (store.Found, error)
	Lineage(ctx context.Context, id string) (string, error)
	FindSession(ctx context.Context, name string) (store.SessionInfo, error)
	ListSessions(context.Context, store.Selection) (list []store.SessionInfo, more int, err error)
	Around(ctx context.Context, session string, message int64, window int, roles []string) (store.Past, error)
	Ends(ctx context.Context, session string, first, last int, roles []string) (begin, end []store.Message, between int, err error)
}

// Past is the host service Search over one store.
type Past struct {
	hostv1.UnimplementedSearchServer
	store conversations
}

// NewPast returns the service.
func NewPast(s conversations) *Past { return &Past{store: s} }

// rolesOf are those whose messages are wanted.
func rolesOf(asked []string) ([]string, error) {
	if len(asked) == 0 {
		return []string{"user", "assistant"}, nil
	}
	for _, r := range asked {
		if len(asked) > maxRoles || !slices.Contains([]string{"user", "assistant", "tool", "system"}, r) {
			return nil, fmt.Errorf("role %q: %w: the roles are user, assistant, tool and system", cut(r, 60), ipc.ErrInvalid)
		}
	}
	return asked, nil
}

// Discover finds sessions by what was said in them. A conversation that goes on in several sessions counts once, and what
// runs by itself (cron) comes after what a person said.
func (p *Past) Discover(ctx context.Context, r *hostv1.DiscoverRequest) (*hostv1.DiscoverResponse, error) {
	if !utf8.ValidString(r.Query) || strings.TrimSpace(r.Query) == "" {
		return nil, fmt.Errorf("query: %w: it is empty", ipc.ErrInvalid)
	}
	roles, err := rolesOf(r.Roles)
	if err != nil {
		return nil, err
	}
	found, err := p.store.Search(ctx, store.Search{Text: r.Query, Roles: roles, Except: unseen, Sort: r.Sort, Limit: scanHits})
	if err != nil {
		return nil, kind(err)
	}
	slices.SortStableFunc(found.Hits, func(a, b store.Hit) int { return cron(a) - cron(b) })
	list, err := p.tell(ctx, found.Hits, roles, r.CurrentSession, bounded(r.Limit, defaultFound, maxFound))
	if err != nil {
		return nil, kind(err)
	}
	return &hostv1.DiscoverResponse{Found: list, Partial: found.Partial, IndexPercent: uint32(found.Index.Percent())}, nil
}

// tell reads what belongs to hits, the first of each conversation but that of the session that asks, and at most so many. A hit
// that is gone by now (its session was deleted, its message taken back) is passed over, and the next of its conversation is told.
func (p *Past) tell(ctx context.Context, hits []store.Hit, roles []string, asking string, most int) (list []*hostv1.Discovered, err error) {
	seen, roots := map[string]bool{}, map[string]string{}
	if asking != "" {
		if root, err := p.store.Lineage(ctx, asking); err == nil {
			seen[root] = true
		}
	}
	for _, h := range hits {
		if len(list) == most {
			break
		}
		root, known := roots[h.SessionID]
		if !known {
			if root, err = p.store.Lineage(ctx, h.SessionID); err != nil {
				return nil, err
			}
			roots[h.SessionID] = root
		}
		if seen[root] {
			continue
		}
		d, err := p.discovered(ctx, h, roles)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		seen[root] = true
		list = append(list, d)
	}
	return list, nil
}

func cron(h store.Hit) int {
	if h.Source == "cron" {
		return 1
	}
	return 0
}

// discovered is a hit with what was said around it and at the ends of its session.
func (p *Past) discovered(ctx context.Context, h store.Hit, roles []string) (*hostv1.Discovered, error) {
	around, err := p.store.Around(ctx, h.SessionID, h.MessageID, aroundHit, roles)
	if err != nil {
		return nil, err
	}
	i, err := p.store.FindSession(ctx, h.SessionID)
	if err == nil && i.ID != h.SessionID || errors.Is(err, store.ErrInvalid) {
		err = store.ErrNotFound // of one that is gone the id may be the beginning of others
	}
	if err != nil {
		return nil, err
	}
	first, last, _, err := p.store.Ends(ctx, h.SessionID, bookend, bookend, roles)
	if err != nil {
		return nil, err
	}
	return &hostv1.Discovered{
		Session: pastSession(i), MatchId: h.MessageID, Snippet: h.Snippet, Window: pastMessages(around.Messages, windowText),
		First: pastMessages(first, bookendText), Last: pastMessages(last, bookendText),
	}, nil
}

// Scroll returns the messages around one.
func (p *Past) Scroll(ctx context.Context, r *hostv1.ScrollRequest) (*hostv1.ScrollResponse, error) {
	i, roles, err := p.session(ctx, r.Session, r.Roles)
	if err != nil {
		return nil, err
	}
	around, err := p.store.Around(ctx, i.ID, r.Around, bounded(r.Window, defaultWindow, maxWindow), roles)
	if err != nil {
		return nil, kind(err)
	}
	return &hostv1.ScrollResponse{Session: pastSession(i), Messages: pastMessages(around.Messages, windowText), Before: uint64(around.Before), After: uint64(around.After)}, nil
}

// Read returns the beginning and the end of a session.
func (p *Past) Read(ctx context.Context, r *hostv1.ReadRequest) (*hostv1.ReadResponse, error) {
	i, roles, err := p.session(ctx, r.Session, r.Roles)
	if err != nil {
		return nil, err
	}
	first, last, between, err := p.store.Ends(ctx, i.ID, readFirst, readLast, roles)
	if err != nil {
		return nil, kind(err)
	}
	return &hostv1.ReadResponse{Session: pastSession(i), First: pastMessages(first, windowText), Last: pastMessages(last, windowText), Between: uint64(between)}, nil
}

func (p *Past) session(ctx context.Context, name string, asked []string) (i store.SessionInfo, roles []string, err error) {
	if roles, err = rolesOf(asked); err != nil {
		return i, nil, err
	}
	i, err = p.store.FindSession(ctx, name)
	return i, roles, kind(err)
}

// Browse lists the latest sessions but the one that asks.
func (p *Past) Browse(ctx context.Context, r *hostv1.BrowseRequest) (*hostv1.BrowseResponse, error) {
	limit := bounded(r.Limit, defaultBrowse, maxFound)
	list, _, err := p.store.ListSessions(ctx, store.Selection{Limit: limit + 1})
	if err != nil {
		return nil, kind(err)
	}
	out := &hostv1.BrowseResponse{}
	for _, i := range list {
		if i.ID != r.CurrentSession && len(out.Sessions) < limit {
			out.Sessions = append(out.Sessions, pastSession(i))
		}
	}
	if r.Sort == "oldest" {
		slices.Reverse(out.Sessions)
	}
	return out, nil
}

func pastSession(i store.SessionInfo) *hostv1.PastSession {
	return &hostv1.PastSession{Id: i.ID, Source: i.Source, Title: i.Title, Preview: i.Preview, StartedAt: unix(i.StartedAt), LastActive: unix(i.LastActive), Messages: int64(i.Messages)}
}

func pastMessages(list []store.Message, chars int) (out []*hostv1.PastMessage) {
	for _, m := range list {
		out = append(out, &hostv1.PastMessage{Id: m.ID, Role: m.Role, Content: cut(m.Content, chars), ToolName: m.ToolName, At: unix(m.Time)})
	}
	return out
}
