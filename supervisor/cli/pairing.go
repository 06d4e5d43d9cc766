package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/pairing"
)

func (p *program) pairing() *cobra.Command {
	return group(&cobra.Command{
		Use:   "pairing",
		Short: "Let people in who write to a bot and are on no list",
		Long: `Whom no list of allowed users names gets a code from the bot. Approving the code lets that person in, from then
on and after every restart. It works with and without a running supervisor.

A revoked person who is named in a list of allowed users (TELEGRAM_ALLOWED_USERS in .env, allowed_users in config.yaml)
is still let in by that list.`,
		Example: `  hermes-supervisor pairing list
  hermes-supervisor pairing approve telegram K7QW2MXP
  hermes-supervisor pairing revoke telegram 123456789`,
	}, p.pairingList(), p.pairingApprove(), p.pairingRevoke(), p.pairingClear())
}

// operatorPairing is what the commands need: the running supervisor's service, or the files themselves.
type operatorPairing struct {
	list    func(context.Context, *controlv1.PairingListRequest) (*controlv1.PairingListResponse, error)
	approve func(context.Context, *controlv1.PairingApproveRequest) (*controlv1.PairedPerson, error)
	revoke  func(context.Context, *controlv1.PairingRevokeRequest) (*controlv1.PairingRevokeResponse, error)
	clear   func(context.Context, *controlv1.PairingClearRequest) (*controlv1.PairingClearResponse, error)
}

// withPairing runs f with the running supervisor, or, if none runs, under the home's lock.
func (p *program) withPairing(ctx context.Context, f func(operatorPairing) error) error {
	path, home, err := p.socket()
	if err != nil {
		return err
	}
	if err := answers(ctx, path); errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		lock, err := store.LockHome(home)
		if err != nil {
			return ipc.WithKind(fmt.Errorf("pairing files of %s: %w", home, err), ipc.ErrBusy)
		}
		defer func() { _ = lock.Unlock() }()
		s := supervisor.NewPairing(pairing.New(home, time.Now))
		return f(operatorPairing{s.List, s.Approve, s.Revoke, s.ClearPending})
	}
	return p.connected(ctx, func(conn grpc.ClientConnInterface) error {
		c := controlv1.NewPairingClient(conn)
		return f(operatorPairing{
			list: func(ctx context.Context, r *controlv1.PairingListRequest) (*controlv1.PairingListResponse, error) {
				return c.List(ctx, r)
			},
			approve: func(ctx context.Context, r *controlv1.PairingApproveRequest) (*controlv1.PairedPerson, error) {
				return c.Approve(ctx, r)
			},
			revoke: func(ctx context.Context, r *controlv1.PairingRevokeRequest) (*controlv1.PairingRevokeResponse, error) {
				return c.Revoke(ctx, r)
			},
			clear: func(ctx context.Context, r *controlv1.PairingClearRequest) (*controlv1.PairingClearResponse, error) {
				return c.ClearPending(ctx, r)
			},
		})
	})
}

func (p *program) pairingList() *cobra.Command {
	r := &controlv1.PairingListRequest{}
	return p.withOutput(&cobra.Command{
		Use:   "list [PLATFORM]",
		Short: "Show who waits and who was approved",
		Example: `  hermes-supervisor pairing list
  hermes-supervisor pairing list telegram -o json`,
		Args: between(0, 1, "a platform"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.Platform = args[0]
			}
			return p.withPairing(c.Context(), func(s operatorPairing) error {
				list, err := s.list(c.Context(), r)
				if err != nil {
					return err
				}
				return p.print(list, func(w io.Writer) error { return pairingTable(w, list) })
			})
		},
	})
}

func pairingTable(w io.Writer, list *controlv1.PairingListResponse) error {
	if len(list.Pending)+len(list.Approved) == 0 {
		_, err := fmt.Fprintln(w, "nobody waits, and nobody was approved")
		return err
	}
	var lines [][]string
	for _, r := range list.Pending {
		lines = append(lines, []string{r.Platform, "waits", r.UserId, oneLine(r.UserName, 40), moment(r.AskedAt).Format("2006-01-02 15:04"), r.Id})
	}
	for _, a := range list.Approved {
		lines = append(lines, []string{a.Platform, "approved", a.UserId, oneLine(a.UserName, 40), moment(a.ApprovedAt).Format("2006-01-02 15:04"), ""})
	}
	return rows(w, "PLATFORM | STATE | USER | NAME | SINCE | REQUEST", lines)
}

func (p *program) pairingApprove() *cobra.Command {
	r := &controlv1.PairingApproveRequest{}
	return p.withOutput(&cobra.Command{
		Use:   "approve PLATFORM CODE",
		Short: "Let in the person who got a code",
		Long: `Approve takes the code that the person got from the bot, or the request's id as "pairing list" shows it. After
five wrong codes in a row no code of the platform is taken for an hour; an id always is.`,
		Example: "  hermes-supervisor pairing approve telegram K7QW2MXP",
		Args:    exactly(2, "a platform and a code"),
		RunE: func(c *cobra.Command, args []string) error {
			r.Platform, r.Code = args[0], args[1]
			return p.withPairing(c.Context(), func(s operatorPairing) error {
				person, err := s.approve(c.Context(), r)
				if err != nil {
					return err
				}
				return p.print(person, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s %s is let in (%s)\n", person.Platform, person.UserId, dash(oneLine(person.UserName, 80)))
					return err
				})
			})
		},
	})
}

func (p *program) pairingRevoke() *cobra.Command {
	r := &controlv1.PairingRevokeRequest{}
	return p.withOutput(&cobra.Command{
		Use:     "revoke PLATFORM USER",
		Short:   "Take an approval back",
		Example: "  hermes-supervisor pairing revoke telegram 123456789",
		Args:    exactly(2, "a platform and the id of a user"),
		RunE: func(c *cobra.Command, args []string) error {
			r.Platform, r.UserId = args[0], args[1]
			return p.withPairing(c.Context(), func(s operatorPairing) error {
				resp, err := s.revoke(c.Context(), r)
				if err != nil {
					return err
				}
				if !resp.Revoked {
					return fmt.Errorf("%s %s was not approved: %w\nsee: hermes-supervisor pairing list", r.Platform, r.UserId, ipc.ErrNotFound)
				}
				return p.print(resp, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s %s is let in no more by pairing\n", r.Platform, r.UserId)
					return err
				})
			})
		},
	})
}

func (p *program) pairingClear() *cobra.Command {
	r := &controlv1.PairingClearRequest{}
	return p.withOutput(&cobra.Command{
		Use:     "clear-pending [PLATFORM]",
		Short:   "Forget the codes that wait",
		Example: "  hermes-supervisor pairing clear-pending telegram",
		Args:    between(0, 1, "a platform"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.Platform = args[0]
			}
			return p.withPairing(c.Context(), func(s operatorPairing) error {
				resp, err := s.clear(c.Context(), r)
				if err != nil {
					return err
				}
				return p.print(resp, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s forgotten\n", wording.Count(resp.Cleared, "code", "codes"))
					return err
				})
			})
		},
	})
}
