// Package maintenance serves the commands that look after the stores (doctor, backup, optimize) in the process that has
// them open.
//
// Rules: nothing here rewrites a file that is in use, and nothing holds the writers up for longer than one short step.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// Stores are the databases of a home.
type Stores interface {
	// Names lists the stores that exist, by their path in the home; with an error those that could be listed.
	Names() ([]string, error)
	// Copy makes a copy of one in a new file.
	Copy(ctx context.Context, name, to string) error
	// Optimize merges the full-text index of the conversations.
	Optimize(ctx context.Context) (steps int64, err error)
	// Mend makes a repair of one and says what it did.
	Mend(ctx context.Context, name string, r store.Repair) (done []string, err error)
	// Convert gives the full-text index the newest layout, if it has an older one. tell hears how far it is.
	Convert(ctx context.Context, tell func(percent int)) (converted bool, err error)
}

// A Service answers maintenance commands for one home.
type Service struct {
	controlv1.UnimplementedMaintenanceServer
	home   string
	stores Stores
}

// New returns the service of a home.
func New(home string, s Stores) *Service { return &Service{home: home, stores: s} }

// Copy makes a copy of a store.
func (s *Service) Copy(ctx context.Context, r *controlv1.CopyStoreRequest) (*controlv1.CopyStoreResponse, error) {
	names, err := s.stores.Names()
	switch known := slices.Contains(names, r.Store); { // that boards cannot be listed must not cost the backup of all else
	case !known && err != nil:
		return nil, err
	case !known:
		return nil, fmt.Errorf("store %q: %w", r.Store, ipc.ErrNotFound)
	}
	if !filepath.IsAbs(r.Path) {
		return nil, fmt.Errorf("copy to %q: %w: the path must be absolute", r.Path, ipc.ErrInvalid)
	}
	if _, err := os.Lstat(r.Path); err == nil {
		return nil, fmt.Errorf("copy to %s: %w", r.Path, ipc.ErrExists)
	}
	if err := s.stores.Copy(ctx, r.Store, r.Path); err != nil {
		return nil, kind(err)
	}
	info, err := os.Stat(r.Path)
	if err != nil {
		return nil, err
	}
	return &controlv1.CopyStoreResponse{Bytes: info.Size()}, nil
}

// Check reads the stores and says what is wrong with them.
func (s *Service) Check(ctx context.Context, _ *controlv1.CheckStoresRequest) (*controlv1.CheckStoresResponse, error) {
	names, err := s.stores.Names()
	if err != nil {
		return nil, err
	}
	r := &controlv1.CheckStoresResponse{}
	for _, name := range names {
		i, err := store.Inspect(ctx, filepath.Join(s.home, filepath.FromSlash(name)))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			i.Damage = append(i.Damage, err.Error())
		}
		r.Stores = append(r.Stores, &controlv1.StoreCheck{
			Store: name, Bytes: i.Bytes, WalBytes: i.WALBytes, FreeBytes: i.FreeBytes, Sessions: i.Sessions, Messages: i.Messages,
			JournalMode: i.JournalMode, Damage: i.Damage, IndexDamage: i.IndexDamage, MissingIndices: i.MissingIndices, WrongIndices: i.WrongIndices,
		})
	}
	return r, nil
}

// Mend reads a store as a whole and makes again what of it is derived and wrong.
func (s *Service) Mend(ctx context.Context, r *controlv1.MendStoreRequest) (*controlv1.MendStoreResponse, error) {
	names, err := s.stores.Names()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, r.Store) {
		return nil, fmt.Errorf("store %q: %w", r.Store, ipc.ErrNotFound)
	}
	i, err := store.Inspect(ctx, filepath.Join(s.home, filepath.FromSlash(r.Store)))
	if err != nil {
		return nil, kind(err)
	}
	if len(i.Damage) > 0 {
		return nil, fmt.Errorf("store %s: %w: what it holds is damaged, and nothing is changed: %s", r.Store, ipc.ErrRefused, i.Damage[0])
	}
	done, err := s.stores.Mend(ctx, r.Store, i.Repair())
	if err != nil {
		return nil, kind(err)
	}
	return &controlv1.MendStoreResponse{Done: done}, nil
}

// Convert gives the full-text index the newest layout, unless another process has the file open.
func (s *Service) Convert(r *controlv1.ConvertIndexRequest, out controlv1.Maintenance_ConvertServer) error {
	if err := store.NotHeld(filepath.Join(s.home, "state.db")); err != nil && !r.Force {
		return fmt.Errorf("refusing to optimize-storage: %w: %w\nnothing is lost; stop them first and run it again, or accept the risk with --force", ipc.ErrRefused, err)
	}
	last := -1
	converted, err := s.stores.Convert(out.Context(), func(percent int) {
		if percent != last {
			last = percent
			_ = out.Send(&controlv1.ConvertIndexProgress{Percent: uint32(percent)}) // the end tells whether anybody listens
		}
	})
	if err != nil {
		return kind(err)
	}
	return out.Send(&controlv1.ConvertIndexProgress{Percent: 100, Done: true, Converted: converted})
}

// Optimize merges the full-text index.
func (s *Service) Optimize(ctx context.Context, _ *controlv1.OptimizeStoreRequest) (*controlv1.OptimizeStoreResponse, error) {
	steps, err := s.stores.Optimize(ctx)
	if err != nil {
		return nil, kind(err)
	}
	return &controlv1.OptimizeStoreResponse{Steps: steps}, nil
}

func kind(err error) error {
	for from, to := range map[error]error{store.ErrDiskFull: ipc.ErrFull, store.ErrBusy: ipc.ErrBusy, store.ErrSuspended: ipc.ErrBusy, store.ErrClosed: ipc.ErrGone} {
		if errors.Is(err, from) {
			return ipc.WithKind(err, to)
		}
	}
	return err
}
