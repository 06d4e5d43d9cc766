package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/doctor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/maintenance"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

func (p *program) doctor() *cobra.Command {
	m := doctor.Mending{}
	c := p.withOutput(&cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the home, its stores, the service and the installation",
		Long: `Doctor looks at everything that a home needs and says what is wrong and what to do. It may be run at any time and changes
nothing. Stores are read as a whole, about 6 s a GiB, through the supervisor if one runs.

With --fix it mends what can be mended without a risk, and says what was and what is: modes of files, search indices that are
damaged, ordinary indices that are missing or wrong, a WAL that nobody empties, what killed processes left half made. Of stores
it mends nothing while another program has one open. It ends with 1 if something fails.`,
		Example: `  hermes-supervisor doctor
  hermes-supervisor doctor --fix --dry-run
  hermes-supervisor doctor --fix
  hermes-supervisor doctor -o json | jq '.checks[] | select(.state != "ok")'`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := p.examine(c.Context(), m)
			if err != nil {
				return err
			}
			healthy := doctor.Healthy(list)
			if p.output == outputJSON {
				err = p.printJSON(map[string]any{"healthy": healthy, "checks": list})
			} else {
				err = p.doctorTable(forPeople(p.out), list, m.DryRun)
			}
			if err == nil && !healthy {
				return silentError{ipc.ExitFailed}
			}
			return err
		},
	})
	c.Flags().BoolVar(&m.Fix, "fix", false, "mend what can be mended without a risk")
	c.Flags().BoolVar(&m.DryRun, "dry-run", false, "only say what --fix would mend")
	c.Flags().BoolVar(&m.Force, "force", false, "mend stores although another program has one open")
	return c
}

func (p *program) examine(ctx context.Context, m doctor.Mending) ([]doctor.Finding, error) {
	path, home, err := p.socket()
	if err != nil {
		return nil, err
	}
	if err := foreignHome(home, os.Geteuid()); err != nil {
		return nil, err
	}
	s := doctor.Subject{Home: home, RunDir: filepath.Dir(path), Binaries: supervisor.CheckBinaries, Misfits: misfits, Now: time.Now()}
	s.Config, s.ConfigErr = config.Load(home)
	s.Plugins = func() (map[string]int64, error) {
		c, err := p.catalogue()
		if err != nil {
			return nil, err
		}
		sizes := map[string]int64{}
		for _, e := range c.List() {
			sizes[e.Name] = c.DataBytes(e.Name)
		}
		return sizes, nil
	}
	s.Own = func(f func() error) error { return p.owning(home, f) }
	if answers(ctx, path) != nil {
		service := maintenance.New(home, resting{home, p})
		looked(&s, service.Check, service.Mend)
		return doctor.Examine(ctx, s, m), nil
	}
	var list []doctor.Finding
	err = p.connected(ctx, func(conn grpc.ClientConnInterface) error {
		if s.Running, err = controlv1.NewControlClient(conn).Status(ctx, &controlv1.StatusRequest{}); err != nil {
			return fmt.Errorf("status: %w", err)
		}
		client := controlv1.NewMaintenanceClient(conn)
		looked(&s, func(ctx context.Context, r *controlv1.CheckStoresRequest) (*controlv1.CheckStoresResponse, error) {
			return client.Check(ctx, r)
		},
			func(ctx context.Context, r *controlv1.MendStoreRequest) (*controlv1.MendStoreResponse, error) {
				return client.Mend(ctx, r)
			})
		list = doctor.Examine(ctx, s, m)
		return nil
	})
	return list, err
}

// foreignHome says that a home is another user's, of which uid sees too little to judge it. Root sees all.
func foreignHome(home string, uid int) error {
	info, err := os.Stat(home)
	owner := uid
	if err == nil {
		owner = int(info.Sys().(*syscall.Stat_t).Uid)
	}
	if !errors.Is(err, os.ErrPermission) && (owner == uid || uid == 0) {
		return nil
	}
	return ipc.WithKind(fmt.Errorf("home %s is not yours: doctor would see only a part of it\nrun it as the user it belongs to, or as root", home), ipc.ErrDenied)
}

// looked lets the subject read and mend stores through a service.
func looked(s *doctor.Subject, check func(context.Context, *controlv1.CheckStoresRequest) (*controlv1.CheckStoresResponse, error),
	mend func(context.Context, *controlv1.MendStoreRequest) (*controlv1.MendStoreResponse, error)) {
	s.Check = func(ctx context.Context) ([]*controlv1.StoreCheck, error) {
		r, err := check(ctx, &controlv1.CheckStoresRequest{})
		return r.GetStores(), err
	}
	s.Mend = func(ctx context.Context, name string) ([]string, error) {
		r, err := mend(ctx, &controlv1.MendStoreRequest{Store: name})
		return r.GetDone(), err
	}
}

// resting are the stores of a home in which no supervisor runs.
type resting struct {
	home string
	p    *program
}

func (r resting) Names() ([]string, error) { return databases(r.home), nil }

func (r resting) Copy(ctx context.Context, name, to string) error {
	return backup.Copier(alone(r.home))(ctx, name, to)
}

func (r resting) Optimize(context.Context) (int64, error) {
	return 0, errors.New("no supervisor runs")
}

func (r resting) Convert(context.Context, func(int)) (bool, error) {
	return false, errors.New("no supervisor runs")
}

// Mend opens a store under the lock of the home.
func (r resting) Mend(ctx context.Context, name string, repair store.Repair) (done []string, err error) {
	err = r.p.owning(r.home, func() (err error) {
		log := hclog.New(&hclog.LoggerOptions{Name: "store", Output: r.p.err, Level: hclog.Error})
		done, err = store.MendFile(ctx, filepath.Join(r.home, filepath.FromSlash(name)), repair, store.Options{Log: log, Rollback: rollback(r.home)})
		return err
	})
	return done, err
}

// misfits looks at the installed units of the usual name, of the user and of the system.
func misfits(ctx context.Context, c *config.Config) (list []string) {
	const unit = "hermes-supervisor.service"
	for _, user := range []bool{true, false} {
		s, err := systemd.ReadSettings(ctx, unit, user)
		if err == nil && s.Loaded {
			list = append(list, s.Misfits(c.Supervisor.DrainTimeout)...)
		}
	}
	return list
}

func (p *program) doctorTable(w io.Writer, list []doctor.Finding, dryRun bool) error {
	wrong, fixed := 0, 0
	marks := map[string]string{doctor.OK: p.colour(green, "ok  "), doctor.Warn: p.colour(yellow, "warn"), doctor.Fail: p.colour(red, "FAIL")}
	for _, f := range list {
		note := ""
		if f.Fixed {
			note = " (mended)"
			fixed++
		}
		fmt.Fprintf(w, "%s  %s: %s%s\n", marks[f.State], printable(f.Name), cell(f.Detail), note)
		for _, d := range f.Done {
			if dryRun {
				d = "would be mended: " + d
			}
			fmt.Fprintf(w, "      %s\n", cell(d))
		}
		if f.State != doctor.OK {
			wrong++
			if f.Advice != "" {
				fmt.Fprintf(w, "      %s\n", cell(f.Advice))
			}
		}
	}
	switch {
	case wrong > 0:
		fmt.Fprintf(w, "\n%d of %d need a look\n", wrong, len(list))
	case fixed > 0:
		fmt.Fprintf(w, "\n%d mended, all is well\n", fixed)
	default:
		fmt.Fprintln(w, "\nall is well")
	}
	return nil
}
