package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

const (
	// trialBudget bounds a trial: a start, and the ladder that ends it.
	trialBudget = 30 * time.Second
	// trialSample is how often a program on trial is looked at, which tells what it leaves behind.
	trialSample = 100 * time.Millisecond
)

// A Trial starts a program of the catalogue, shut in and with nothing granted, to ask it what it is. It needs no running
// supervisor; worker.Prepare must have been called in this process.
type Trial struct {
	Config    *config.Config
	Catalogue *catalogue.Catalogue
	Entry     catalogue.Entry // its checksum, and the name if it is known
	Closed    []string        // folders that no grant opens
	Granted   bool            // with all that the entry was granted (else reading alone), in the plugin's own folder
}

// Describe returns what the program says of itself, and whether it had to be started plain. An error holds its last words.
func (t Trial) Describe(ctx context.Context) (d *toolv1.DescribeResponse, plain bool, err error) {
	err = t.With(ctx, t.Entry.Plain, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		d, err = toolv1.NewToolClient(conn).Describe(ctx, &toolv1.DescribeRequest{})
		return err
	})
	if err == nil || t.Entry.Plain || !strings.Contains(err.Error(), worker.NeedsPlain) {
		return d, t.Entry.Plain, err
	}
	t.Entry.Plain = true
	d, _, err = t.Describe(ctx)
	return d, true, err
}

// With runs f with a connection to the started program and ends it after.
func (t Trial) With(ctx context.Context, plain bool, f func(context.Context, grpc.ClientConnInterface) error) error {
	ctx, cancel := context.WithTimeout(ctx, trialBudget)
	defer cancel()
	spec, tidy, err := t.spec(plain)
	if err != nil {
		return err
	}
	defer tidy()
	runDir, err := os.MkdirTemp("", "hs-")
	if err != nil {
		return fmt.Errorf("folder for a socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(runDir) }()
	book := logs.NewBook(logs.Options{})
	defer book.Close()
	sampler := sample.NewSampler(sample.System, trialSample)
	orphans := worker.NewOrphans(runDir, book.Logger())
	host := &hostServices{record: func(store.Event) {}}
	if t.Granted {
		host.secrets = func() config.Secrets { return t.Config.Secrets }
	}
	n := newNews(spec.Name, book)
	w := worker.New(spec, worker.Hooks{Register: host.register, Up: n.serves, Event: n.event},
		worker.Env{Log: book, Sampler: sampler, Orphans: orphans, RunDir: runDir, Version: ipc.Version()})

	var running sync.WaitGroup
	background, stopBackground := context.WithCancel(context.Background())
	life, stop := context.WithCancel(background)
	running.Go(func() { sampler.Run(background) })
	running.Go(func() { orphans.Run(background) })
	gone := make(chan struct{})
	go func() { defer close(gone); w.Run(life) }()
	select {
	case conn := <-n.up:
		if err = f(ctx, conn); errors.Is(err, ipc.ErrGone) {
			select { // why, is known when it has been waited for
			case err = <-n.died:
			case <-ctx.Done():
			}
		}
	case err = <-n.failed:
	case <-ctx.Done():
		err = fmt.Errorf("the plugin did not start within %s: %w", trialBudget, ipc.ErrTimeout)
	}
	stop()
	<-gone
	stopBackground()
	running.Wait()
	return err
}

// news is what becomes of the program of a trial.
type news struct {
	name         string
	book         *logs.Book
	up           chan grpc.ClientConnInterface
	failed, died chan error // why, with its last words
}

func newNews(name string, book *logs.Book) *news {
	return &news{name: name, book: book, up: make(chan grpc.ClientConnInterface, 1), failed: make(chan error, 1), died: make(chan error, 1)}
}

func (n *news) serves(_ ipc.Identity, conn grpc.ClientConnInterface) func() {
	select {
	case n.up <- conn:
	default: // it was started again; the trial is over by then
	}
	return func() {}
}

func (n *news) event(e store.Event) {
	switch e.Kind {
	case worker.KindFailed:
		offer(n.failed, lastWords("the plugin does not start: "+e.Message, n.book.Tail(n.name, trialLines)))
	case worker.KindExited:
		offer(n.died, lastWords("the plugin ended in the call: "+e.Message, n.book.Tail(n.name, trialLines)))
	}
}

// trialLines of its log are shown with a start that failed, or with its end.
const trialLines = 10

// lastWords is what went wrong, with what the program said.
func lastWords(text string, lines []logs.Line) error {
	for _, l := range lines {
		if l.Message != "" {
			text += "\nit said: " + l.Message
		}
	}
	return errors.New(text)
}

func offer(c chan<- error, err error) {
	select {
	case c <- err:
	default:
	}
}

// spec is the worker of a trial, in a folder of its own that is removed after.
func (t Trial) spec(plain bool) (worker.Spec, func(), error) {
	program, err := FindBinary(confineName, t.Config.Supervisor.Libexec)
	if err != nil {
		return worker.Spec{}, nil, err
	}
	e, set := t.Entry, t.Config.Supervisor.PluginFor(t.Entry.Name)
	e.Plain = plain
	if e.Name == "" {
		e.Name = "plugin"
	}
	data, tidy := t.Catalogue.DataDir(e.Name), func() {}
	if !t.Granted {
		e.Granted = catalogue.Permissions{Read: e.Granted.Read}
		dir := filepath.Dir(data)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return worker.Spec{}, nil, fmt.Errorf("folder of the plugin: %w", err)
		}
		if data, err = os.MkdirTemp(dir, ".trial-"); err != nil {
			return worker.Spec{}, nil, fmt.Errorf("folder of the plugin: %w", err)
		}
		tidy = func() { _ = os.RemoveAll(data) }
	}
	limits := t.Config.Supervisor.LimitsFor(config.PluginWorker(e.Name), ipc.RolePlugin)
	return pluginSpec(t.Catalogue, e, quarters{program: program, data: data, closed: t.Closed, set: set, limits: limits}), tidy, nil
}
