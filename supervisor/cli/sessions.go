package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sessions"
)

func (p *program) sessions() *cobra.Command {
	return group(&cobra.Command{
		Use:   "sessions",
		Short: "Look at, search, move and tidy up conversations",
		Long: `Sessions works on the conversations of the home: through its running supervisor, or, where none runs, on the file itself.

A session is named by its id, the beginning of its id, its title, or "latest".`,
		Example: `  hermes-supervisor sessions list
  hermes-supervisor sessions search "invoice NOT draft"
  hermes-supervisor sessions export --older-than 90d old.jsonl
  hermes-supervisor sessions prune --older-than 90d --dry-run`,
	}, p.sessionsList(), p.sessionsShow(), p.sessionsBrowse(), p.sessionsSearch(), p.sessionsExport(), p.sessionsImport(),
		p.sessionsRename(), p.sessionsArchive(), p.sessionsDelete(), p.sessionsPrune(), p.sessionsStats(), p.sessionsRecover(),
		p.sessionsOptimize(), p.sessionsOptimizeStorage())
}

// stateFile is the store of conversations in a home.
const stateFile = "state.db"

// onSessions runs f with a client of the running supervisor, or of a service in this process that has the file open under
// the lock of the home.
func (p *program) onSessions(ctx context.Context, f func(controlv1.SessionsClient) error) error {
	return p.onStore(ctx, false, store.Options{}, f)
}

// reading is onSessions for what only reads: it waits for no other program that has the store open.
func (p *program) reading(ctx context.Context, f func(controlv1.SessionsClient) error) error {
	return p.onStore(ctx, false, store.Options{Reading: true}, f)
}

// onStore is onSessions, and where there is no store yet and create is set it makes one. Without it nothing is made: a home
// without a store is one without sessions.
func (p *program) onStore(ctx context.Context, create bool, o store.Options, f func(controlv1.SessionsClient) error) error {
	path, home, err := p.socket()
	if err != nil {
		return err
	}
	err = answers(ctx, path)
	if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
		return p.connected(ctx, func(conn grpc.ClientConnInterface) error { return f(controlv1.NewSessionsClient(conn)) })
	}
	if _, err := os.Stat(filepath.Join(home, stateFile)); errors.Is(err, os.ErrNotExist) && !create && !backup.Waiting(home) {
		return inProcess(func(g *grpc.Server) { controlv1.RegisterSessionsServer(g, sessions.None(home)) },
			func(conn grpc.ClientConnInterface) error { return f(controlv1.NewSessionsClient(conn)) })
	}
	return p.alone(ctx, home, o, func(s *store.State) error {
		return inProcess(func(g *grpc.Server) {
			controlv1.RegisterSessionsServer(g, sessions.New(s, func() error { return store.NotHeld(filepath.Join(home, stateFile)) }))
		}, func(conn grpc.ClientConnInterface) error { return f(controlv1.NewSessionsClient(conn)) })
	})
}

// alone opens the store of a home in which no supervisor runs.
func (p *program) alone(ctx context.Context, home string, o store.Options, f func(*store.State) error) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	return p.owning(home, func() error {
		o.Log, o.Readers, o.Rollback = hclog.New(&hclog.LoggerOptions{Name: "store", Output: p.err, Level: hclog.Error}), 1, rollback(home)
		s, err := store.OpenState(ctx, filepath.Join(home, stateFile), o)
		if err != nil {
			return fmt.Errorf("could not open your session history: %w", err)
		}
		return errors.Join(f(s), s.Close())
	})
}

// rollback says that a home is configured for rollback journals: no command may change that in passing.
func rollback(home string) bool {
	c, err := config.Load(home)
	return err == nil && c.Database.JournalMode == config.JournalDelete
}

// inProcess serves register's services to f without a socket.
func inProcess(register func(*grpc.Server), f func(grpc.ClientConnInterface) error) error {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	register(server)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { server.Stop(); <-done }()
	conn, err := grpc.NewClient("passthrough:in-process", append(ipc.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.dial))...)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return f(conn)
}

// A pipeListener accepts the connections that dial makes, in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a dial.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and dial. grpc calls it once.
func (l *pipeListener) Close() error { close(l.closed); return nil }

// Addr is needed by grpc and says nothing.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "in-process", Net: "unix"} }

// completeTime is how long a shell waits for names.
const completeTime = 2 * time.Second

// completeSession lists the ids of sessions for a shell. It asks a running supervisor alone: a key press opens no file.
func (p *program) completeSession(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeTime)
	defer cancel()
	var names []cobra.Completion
	_ = p.connected(ctx, func(conn grpc.ClientConnInterface) error {
		list, err := controlv1.NewSessionsClient(conn).List(ctx, &controlv1.ListSessionsRequest{Prefix: typed, Limit: 100, Archived: true})
		for _, s := range list.GetSessions() {
			names = append(names, cobra.CompletionWithDesc(s.Id, oneLine(caption(s), 40)))
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// caption is what a person knows a session by.
func caption(s *controlv1.SessionInfo) string {
	if s.Title != "" {
		return s.Title
	}
	return s.Preview
}

// confirm asks a person. No terminal, no answer and anything but yes mean no.
func (p *program) confirm(question string) bool {
	fmt.Fprintf(p.err, "%s [y/N] ", question)
	answer := p.readLine()
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes")
}

// declined is the error of a command that did nothing because a person, or nobody, did not say yes: a script must not take it for
// done. not says what was not done, yes what the flag does.
func declined(not, yes string) error {
	return ipc.WithKind(fmt.Errorf("%s: the answer was not yes (--yes %s without a question)", not, yes), ipc.ErrDenied)
}

// readLine reads one line of input.
func (p *program) readLine() string {
	var b strings.Builder
	one := make([]byte, 1)
	for b.Len() < 1000 {
		if n, err := p.in.Read(one); n == 0 && err != nil || n == 1 && one[0] == '\n' {
			break
		}
		b.WriteByte(one[0])
	}
	return strings.TrimSpace(b.String())
}
