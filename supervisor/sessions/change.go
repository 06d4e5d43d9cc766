package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

// chosen returns the sessions that a request names, or those that its filter selects.
func (s *Service) chosen(ctx context.Context, names []string, f *controlv1.SessionFilter, all bool) (list []store.SessionInfo, named bool, err error) {
	if len(names) > maxNames {
		return nil, true, fmt.Errorf("%d sessions are named: %w: at most %d at once", len(names), ipc.ErrInvalid, maxNames)
	}
	for _, name := range names {
		i, err := s.store.FindSession(ctx, name)
		if err != nil {
			return nil, true, unknown(err)
		}
		list = append(list, i)
	}
	if len(names) > 0 {
		return list, true, nil
	}
	filter := filterOf(f)
	if filter.Empty() && !all {
		return nil, false, fmt.Errorf("%w: name sessions, or say which by a filter such as --older-than 30d or --source cli", ipc.ErrInvalid)
	}
	filter.Archived, filter.Hidden = true, all
	list, _, err = s.store.ListSessions(ctx, filter)
	return list, false, kind(err)
}

// Archive hides sessions from lists, or shows them again.
func (s *Service) Archive(ctx context.Context, r *controlv1.ChangeSessionsRequest) (*controlv1.ChangeSessionsResponse, error) {
	list, named, err := s.chosen(ctx, r.Sessions, r.Filter, false)
	if err != nil {
		return nil, err
	}
	out := &controlv1.ChangeSessionsResponse{}
	for _, i := range list {
		if i.Archived != r.Undo {
			continue // it is as it should be
		}
		if !r.DryRun {
			changed, err := s.store.Archive(ctx, i.ID, !r.Undo)
			if errors.Is(err, store.ErrInUse) && !named {
				out.Left = append(out.Left, i.ID+": a turn is running")
				continue
			}
			if err != nil {
				return nil, kind(err)
			}
			i = changed
		}
		out.Sessions = append(out.Sessions, info(i))
	}
	return out, nil
}

// Delete deletes the sessions that are named, and those that they delegated to.
func (s *Service) Delete(ctx context.Context, r *controlv1.ChangeSessionsRequest) (*controlv1.ChangeSessionsResponse, error) {
	if len(r.Sessions) == 0 {
		return nil, fmt.Errorf("%w: name the sessions to delete; prune deletes by a filter", ipc.ErrInvalid)
	}
	list, _, err := s.chosen(ctx, r.Sessions, nil, false)
	if err != nil {
		return nil, err
	}
	out := &controlv1.ChangeSessionsResponse{}
	if r.Unchanged != "" {
		if len(list) != 1 || r.DryRun {
			return nil, fmt.Errorf("%w: an unchanged session is deleted alone", ipc.ErrInvalid)
		}
		gone, err := s.store.DeleteUnchanged(ctx, list[0].ID, r.Unchanged)
		return &controlv1.ChangeSessionsResponse{Sessions: infos(gone)}, kind(err)
	}
	for _, dry := range []bool{true, false} { // first look at all, so that a refusal leaves everything as it was
		if !dry && r.DryRun {
			break
		}
		out.Sessions = nil
		for _, i := range list {
			gone, err := s.remove(ctx, i.ID, dry)
			if errors.Is(err, store.ErrNotFound) && !dry {
				continue // it went with one before
			}
			if err != nil {
				return nil, kind(err)
			}
			out.Sessions = append(out.Sessions, infos(gone)...)
		}
	}
	return out, nil
}

func (s *Service) remove(ctx context.Context, id string, dry bool) ([]store.SessionInfo, error) {
	if dry {
		return s.store.Doomed(ctx, id)
	}
	return s.store.DeleteSession(ctx, id)
}

// Prune deletes sessions that have ended: those that the filter selects, or those without activity for 90 days.
func (s *Service) Prune(ctx context.Context, r *controlv1.ChangeSessionsRequest) (*controlv1.ChangeSessionsResponse, error) {
	p := store.Prune{Filter: filterOf(r.Filter), IncludeArchived: r.IncludeArchived, IncludePinned: r.IncludePinned, NeverActive: r.NeverActive}
	if p.Filter.Empty() {
		age := pruneInactive
		if r.NeverActive {
			age = pruneUnused
		}
		p.Filter.ActiveBefore = time.Now().Add(-age)
	}
	if !r.DryRun && !r.Force {
		if err := s.quiet("prune"); err != nil {
			return nil, err
		}
	}
	list, left, err := s.store.Prunable(ctx, p)
	if err != nil {
		return nil, kind(err)
	}
	out := &controlv1.ChangeSessionsResponse{Left: left}
	for _, i := range list {
		if r.DryRun {
			out.Sessions = append(out.Sessions, info(i))
			continue
		}
		gone, err := s.store.DeleteSession(ctx, i.ID)
		switch {
		case errors.Is(err, store.ErrInUse):
			out.Left = append(out.Left, i.ID+": a turn is running")
		case errors.Is(err, store.ErrNotFound): // it went with the one that had delegated to it
		case err != nil:
			return out, kind(err)
		default:
			out.Sessions = append(out.Sessions, infos(gone)...)
		}
	}
	return out, nil
}

// quiet refuses to rewrite a file that other processes have open: two of them on one file are how files are damaged.
func (s *Service) quiet(command string) error {
	err := s.notHeld()
	if err == nil {
		return nil
	}
	return ipc.WithKind(fmt.Errorf("refusing `sessions %s`: %w\nnothing is lost; stop them first and run it again, or accept the risk with --force", command, err), ipc.ErrRefused)
}

// selected is what Export writes, conversations together if lineage is wanted.
func (s *Service) selected(ctx context.Context, r *controlv1.ExportSessionsRequest) ([]store.SessionInfo, error) {
	list, _, err := s.chosen(ctx, r.Sessions, r.Filter, r.All)
	if err != nil || !r.Lineage {
		return list, err
	}
	var whole []store.SessionInfo
	seen := map[string]bool{}
	for _, i := range list {
		if seen[i.ID] {
			continue
		}
		chain, err := s.store.Chain(ctx, i.ID)
		if err != nil {
			return nil, kind(err)
		}
		for _, c := range chain {
			if !seen[c.ID] {
				seen[c.ID] = true
				whole = append(whole, c)
			}
		}
	}
	return whole, nil
}

// Select names the sessions that Export would write.
func (s *Service) Select(ctx context.Context, r *controlv1.ExportSessionsRequest) (*controlv1.ListSessionsResponse, error) {
	list, err := s.selected(ctx, r)
	return &controlv1.ListSessionsResponse{Sessions: infos(list)}, err
}

// Export streams the sessions as JSON lines.
func (s *Service) Export(r *controlv1.ExportSessionsRequest, out controlv1.Sessions_ExportServer) error {
	ctx := out.Context()
	list, err := s.selected(ctx, r)
	if err != nil {
		return err
	}
	w := chunks{send: func(b []byte) error { return out.Send(&controlv1.SessionChunk{Data: b}) }}
	for _, i := range list {
		if err := s.store.Export(ctx, i.ID, &w); err != nil {
			return kind(err)
		}
	}
	return nil
}

// chunkSize is below the limit of a message on the wire.
const chunkSize = 256 << 10

// chunks cuts what is written to it into messages.
type chunks struct{ send func([]byte) error }

func (c *chunks) Write(b []byte) (int, error) {
	for at := 0; at < len(b); at += chunkSize {
		if err := c.send(b[at:min(len(b), at+chunkSize)]); err != nil {
			return at, err
		}
	}
	return len(b), nil
}

// Import stores the sessions that it is sent.
func (s *Service) Import(in controlv1.Sessions_ImportServer) error {
	ctx := in.Context()
	out := &controlv1.ImportSessionsResponse{}
	parents := map[string]string{}
	err := store.ReadImport(&received{next: func() ([]byte, error) {
		c, err := in.Recv()
		return c.GetData(), err
	}}, func(i store.Imported) error {
		r, err := s.store.Import(ctx, i)
		if err != nil {
			return err
		}
		if i.Parent != "" {
			parents[i.ID] = i.Parent
		}
		switch {
		case r.Exists:
			out.Left = append(out.Left, i.ID+": is there already")
			return nil
		case r.Note != "":
			out.Left = append(out.Left, i.ID+": "+r.Note)
		}
		out.Imported++
		out.Messages += int64(i.Messages)
		return nil
	})
	if lerr := s.store.LinkParents(ctx, parents); err == nil {
		err = lerr
	}
	if err != nil {
		return kind(fmt.Errorf("%w\n%s imported before; make the import again when that is mended, what is there stays", err,
			wording.Count(out.Imported, "session was", "sessions were")))
	}
	return in.SendAndClose(out)
}

// received reads the messages of a stream as one text.
type received struct {
	next func() ([]byte, error)
	rest []byte
}

func (r *received) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		b, err := r.next()
		if err != nil {
			return 0, err
		}
		r.rest = b
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
