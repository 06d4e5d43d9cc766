package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// ErrChanged says that something is not what it was when a caller looked at it.
var ErrChanged = fmt.Errorf("it has changed since: %w", ErrInUse)

// Chain returns the sessions of one conversation: the one that is named, those that it continues and those that continue
// it, the oldest first. Compression makes such chains; branches and what was delegated are conversations of their own.
func (s *State) Chain(ctx context.Context, id string) ([]SessionInfo, error) {
	return read(ctx, s.database, func(t *tx) ([]SessionInfo, error) {
		first, err := sessionInfo(t, root(t, id))
		if err != nil {
			return nil, err
		}
		list := []SessionInfo{first}
		for at := 0; at < len(list) && len(list) < maxLineage; at++ {
			if list[at].EndReason != "compression" {
				continue
			}
			next, err := all(t, scanInfo, infoColumns+` WHERE s.parent_session_id = ?1 AND CASE WHEN json_valid(s.model_config)
				THEN coalesce(json_extract(s.model_config, '$._delegate_from'), json_extract(s.model_config, '$._branched_from')) END IS NULL
				ORDER BY s.started_at, s.rowid`, list[at].ID)
			if err != nil {
				return nil, err
			}
			for _, i := range next {
				if !slices.ContainsFunc(list, func(o SessionInfo) bool { return o.ID == i.ID }) {
					list = append(list, i)
				}
			}
		}
		return list, nil
	})
}

// DeleteUnchanged is DeleteSession for a session of which a copy was made: it is deleted only if the line that Export wrote,
// whose SHA-256 in hex is digest, is still the one that it would write. The two are one transaction.
func (s *State) DeleteUnchanged(ctx context.Context, id, digest string) ([]SessionInfo, error) {
	return write(ctx, s.database, func(t *tx) ([]SessionInfo, error) {
		list, err := doomed(t, id, s.now())
		if err != nil {
			return nil, err
		}
		if len(list) > 1 {
			return nil, fmt.Errorf("session %s: %w: %d others go with it, of which there is no copy", id, ErrInUse, len(list)-1)
		}
		h := sha256.New()
		if err := export(id, h, func(fn func(*tx) error) error { return fn(t) }); err != nil {
			return nil, err
		}
		if hex.EncodeToString(h.Sum(nil)) != digest {
			return nil, fmt.Errorf("session %s: %w: export it again", id, ErrChanged)
		}
		return list, removeAll(t, list)
	})
}
