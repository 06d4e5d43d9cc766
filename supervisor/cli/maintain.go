package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// homeInRest says that no supervisor of the home answers.
func homeInRest(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// copying runs f with a way to copy databases: through the running supervisor, which has them open, or, where none runs, by
// itself, while the lock of the home keeps one from starting.
func (p *program) copying(ctx context.Context, f func(home string, c backup.Copier) error) error {
	path, home, err := p.socket()
	if err != nil {
		return err
	}
	if err := answers(ctx, path); homeInRest(err) {
		return p.owning(home, func() error { return f(home, alone(home)) })
	}
	return p.connected(ctx, func(conn grpc.ClientConnInterface) error {
		client := controlv1.NewMaintenanceClient(conn)
		return f(home, func(ctx context.Context, name, to string) error {
			to, err := filepath.Abs(to)
			if err != nil {
				return err
			}
			_, err = client.Copy(ctx, &controlv1.CopyStoreRequest{Store: name, Path: to})
			if errors.Is(err, ipc.ErrNotFound) { // a database of another program
				return alone(home)(ctx, name, to)
			}
			return err
		})
	})
}

// alone copies databases of a home without its supervisor.
func alone(home string) backup.Copier {
	return func(ctx context.Context, name, to string) error {
		return store.CopyFile(ctx, filepath.Join(home, filepath.FromSlash(name)), to)
	}
}

// owning runs f while this command owns the home, in which no restore is half done.
func (p *program) owning(home string, f func() error) error {
	lock, err := store.LockHome(home)
	if errors.Is(err, store.ErrLocked) {
		return ipc.WithKind(fmt.Errorf("%w, which does not answer on its control socket\nif it is starting or stopping, try again", err), ipc.ErrBusy)
	}
	if err != nil {
		return err
	}
	if _, err := backup.Resume(home); err != nil {
		return errors.Join(fmt.Errorf("finish a restore that was cut off: %w", err), lock.Unlock())
	}
	return errors.Join(f(), lock.Unlock())
}

// atRest runs f while this command owns the home and nobody has a database of it open. With force the holders are only
// told.
func (p *program) atRest(ctx context.Context, what string, force bool, f func(home string) error) error {
	path, home, err := p.socket()
	if err != nil {
		return err
	}
	if err := answers(ctx, path); !homeInRest(err) {
		return ipc.WithKind(fmt.Errorf("refusing to %s: the supervisor of home %s is running\nstop it first: hermes-supervisor ctl stop", what, home), ipc.ErrRefused)
	}
	return p.owning(home, func() error {
		if err := notHeld(home); err != nil {
			if !force {
				return ipc.WithKind(fmt.Errorf("refusing to %s: %w\nRewriting a database under a program that has it open damages it. Nothing is lost.\n"+
					"Stop the programs first, then try again; --force goes ahead", what, err), ipc.ErrRefused)
			}
			fmt.Fprintln(p.err, printable("going ahead, as told, although "+err.Error()))
		}
		return f(home)
	})
}

// databases lists the stores of a home that exist, by their path in it.
func databases(home string) []string {
	names := []string{}
	for _, pattern := range []string{stateFile, "kanban.db", "kanban/boards/*/kanban.db"} {
		found, _ := filepath.Glob(filepath.Join(home, filepath.FromSlash(pattern)))
		for _, path := range found {
			if name, err := filepath.Rel(home, path); err == nil {
				names = append(names, filepath.ToSlash(name))
			}
		}
	}
	return names
}

// notHeld looks for other processes that have one of the stores open.
func notHeld(home string) error {
	for _, name := range databases(home) {
		if err := store.NotHeld(filepath.Join(home, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	return nil
}
