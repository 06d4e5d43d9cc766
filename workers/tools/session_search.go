package tools

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

//go:embed session_search.md
var sessionSearchText string

// sessionSearch looks into past conversations. They are the supervisor's: this worker has no database.
type sessionSearch struct {
	past hostv1.SearchClient
}

func (t *sessionSearch) tool() plugins.Tool {
	return plugins.Func("session_search", sessionSearchText, t.run, plugins.ReadOnly(), plugins.Timeout(10*time.Second, 20*time.Second))
}

type sessionSearchArgs struct {
	Query           string `json:"query,omitempty" jsonschema:"words to look for"`
	Limit           uint32 `json:"limit,omitempty" jsonschema:"conversations at most" minimum:"1" maximum:"10" default:"3"`
	Sort            string `json:"sort,omitempty" jsonschema:"which come first, the best if not given" enum:"newest,oldest"`
	SessionID       string `json:"session_id,omitempty" jsonschema:"one conversation"`
	AroundMessageID int64  `json:"around_message_id,omitempty" jsonschema:"a message of it, to see those around"`
	Window          uint32 `json:"window,omitempty" jsonschema:"messages on each side of that one" minimum:"1" maximum:"20" default:"5"`
	RoleFilter      string `json:"role_filter,omitempty" jsonschema:"whose messages, joined by commas: user, assistant, tool" default:"user,assistant"`
}

// Validate tells what does not go together.
func (a sessionSearchArgs) Validate() error {
	if a.AroundMessageID != 0 && a.SessionID == "" {
		return errors.New(`"around_message_id" needs the "session_id" it belongs to`)
	}
	return nil
}

// pastMessage is a message as the model reads it.
type pastMessage struct {
	ID      int64  `json:"id"`
	Role    string `json:"role"`
	Tool    string `json:"tool,omitempty"`
	At      string `json:"at,omitempty"`
	Content string `json:"content"`
	Match   bool   `json:"match,omitempty"`
}

// pastSession is a conversation as the model reads it, with the parts that were asked for.
type pastSession struct {
	SessionID  string        `json:"session_id"`
	Title      string        `json:"title,omitempty"`
	Preview    string        `json:"preview,omitempty"`
	Source     string        `json:"source"`
	Started    string        `json:"started"`
	LastActive string        `json:"last_active"`
	Messages   int64         `json:"message_count"`
	Snippet    string        `json:"snippet,omitempty"`
	First      []pastMessage `json:"first,omitempty"`
	Window     []pastMessage `json:"messages,omitempty"`
	Last       []pastMessage `json:"last,omitempty"`
	Before     uint64        `json:"messages_before,omitempty"`
	After      uint64        `json:"messages_after,omitempty"`
	Between    uint64        `json:"messages_left_out,omitempty"`
}

type sessionSearchResult struct {
	Mode     string        `json:"mode"`
	Sessions []pastSession `json:"sessions"`
	Count    int           `json:"count"`
	Note     string        `json:"note,omitempty"`
}

func (t *sessionSearch) run(ctx context.Context, c *plugins.Call, a sessionSearchArgs) (r sessionSearchResult, err error) {
	roles := strings.FieldsFunc(a.RoleFilter, func(r rune) bool { return r == ',' || r == ' ' })
	r.Sessions = []pastSession{}
	switch {
	case a.AroundMessageID != 0:
		r.Mode, err = "scroll", t.scroll(ctx, a, roles, &r)
	case a.SessionID != "":
		r.Mode, err = "read", t.read(ctx, a, roles, &r)
	case strings.TrimSpace(a.Query) != "":
		r.Mode, err = "discovery", t.discover(ctx, c, a, roles, &r)
	default:
		r.Mode, err = "browse", t.browse(ctx, c, a, &r)
	}
	r.Count = len(r.Sessions)
	switch {
	case errors.Is(err, ipc.ErrInvalid):
		return r, plugins.BadArguments("session_search: %v", err)
	case errors.Is(err, ipc.ErrNotFound):
		return r, fmt.Errorf("session_search: there is no such session or message: %w", err)
	case err != nil:
		return r, fmt.Errorf("session_search: %w", err)
	}
	return r, nil
}

func (t *sessionSearch) discover(ctx context.Context, c *plugins.Call, a sessionSearchArgs, roles []string, r *sessionSearchResult) error {
	found, err := t.past.Discover(ctx, &hostv1.DiscoverRequest{Query: a.Query, Limit: a.Limit, Sort: a.Sort, Roles: roles, CurrentSession: c.Origin.SessionID})
	if err != nil {
		return err
	}
	for _, d := range found.Found {
		s := pastSessionOf(d.Session)
		s.Snippet, s.First, s.Window, s.Last = d.Snippet, pastMessagesOf(d.First, 0), pastMessagesOf(d.Window, d.MatchId), pastMessagesOf(d.Last, 0)
		r.Sessions = append(r.Sessions, s)
	}
	if found.Partial {
		r.Note = fmt.Sprintf("the search index is being built (%d %%), and there was no time to look through all older messages", found.IndexPercent)
	}
	return nil
}

func (t *sessionSearch) scroll(ctx context.Context, a sessionSearchArgs, roles []string, r *sessionSearchResult) error {
	p, err := t.past.Scroll(ctx, &hostv1.ScrollRequest{Session: a.SessionID, Around: a.AroundMessageID, Window: a.Window, Roles: roles})
	if err != nil {
		return err
	}
	s := pastSessionOf(p.Session)
	s.Window, s.Before, s.After = pastMessagesOf(p.Messages, a.AroundMessageID), p.Before, p.After
	r.Sessions = append(r.Sessions, s)
	return nil
}

func (t *sessionSearch) read(ctx context.Context, a sessionSearchArgs, roles []string, r *sessionSearchResult) error {
	p, err := t.past.Read(ctx, &hostv1.ReadRequest{Session: a.SessionID, Roles: roles})
	if err != nil {
		return err
	}
	s := pastSessionOf(p.Session)
	s.First, s.Last, s.Between = pastMessagesOf(p.First, 0), pastMessagesOf(p.Last, 0), p.Between
	r.Sessions = append(r.Sessions, s)
	return nil
}

func (t *sessionSearch) browse(ctx context.Context, c *plugins.Call, a sessionSearchArgs, r *sessionSearchResult) error {
	p, err := t.past.Browse(ctx, &hostv1.BrowseRequest{Limit: 10, Sort: a.Sort, CurrentSession: c.Origin.SessionID})
	if err != nil {
		return err
	}
	for _, s := range p.Sessions {
		r.Sessions = append(r.Sessions, pastSessionOf(s))
	}
	return nil
}

func pastSessionOf(s *hostv1.PastSession) pastSession {
	return pastSession{
		SessionID: s.GetId(), Title: s.GetTitle(), Preview: s.GetPreview(), Source: s.GetSource(), Started: pastTime(s.GetStartedAt()),
		LastActive: pastTime(s.GetLastActive()), Messages: s.GetMessages(),
	}
}

func pastMessagesOf(list []*hostv1.PastMessage, match int64) (out []pastMessage) {
	for _, m := range list {
		out = append(out, pastMessage{ID: m.Id, Role: m.Role, Tool: m.ToolName, At: pastTime(m.At), Content: m.Content, Match: match != 0 && m.Id == match})
	}
	return out
}

func pastTime(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return time.UnixMicro(int64(seconds * 1e6)).UTC().Format(time.RFC3339)
}
