// Package supervisor is the program: it puts the parts together, starts them in the order in which they need each
// other, and ends them in the reverse order within one budget.
//
// Rules: it decides nothing that a part below can decide. Databases are opened before any worker lives and closed
// after the last one has gone. The control socket is there from the first to the last, so that one can always ask what
// is going on.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/control"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/event"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/maintenance"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/pairing"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sessions"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/turn"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

// Options are what Run needs besides the configuration.
type Options struct {
	Config  *config.Config
	RunDir  string    // private to this home
	Version string    // of this build
	Stderr  io.Writer // log lines go here
	LogJSON bool
	// Journal sends log lines with their fields to the system's journal instead of to Stderr.
	Journal bool
	// Listener is the control socket if the service manager holds it, whose file stays; nil: one is made.
	Listener net.Listener
	// Load reads the configuration again for a reload.
	Load func(context.Context) (*config.Config, error)
	// Hangup asks for a reload with each value; nil: nobody does.
	Hangup <-chan struct{}
	Ready  func() // called once when every required worker serves; may be nil
}

// ErrHomeInUse says that another supervisor owns the home.
var ErrHomeInUse = store.ErrLocked

// ErrRestart says that Run ended in order because a chat asked for a restart: the service manager is to start it again.
var ErrRestart = errors.New("a restart was asked for")

// Run supervises until ctx ends or somebody asks the control socket for a shutdown, then drains and stops everything.
// It returns nil after an orderly end.
func Run(ctx context.Context, o Options) error {
	s := &supervisor{
		o: o, secrets: &redaction{}, now: time.Now, started: time.Now(), shutdown: make(chan struct{}), lines: make(chan string, 1),
		served: func() {}, openFiles: ownLimit,
	}
	s.state.Store(stateStarting)
	s.current.Store(o.Config)
	s.secrets.add(o.Config.Secrets.Values())
	defer s.close()
	err := s.open(ctx)
	if err == nil {
		err = s.supervise(ctx)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // asked to stop before the start had ended
	}
	if err == nil && s.again.Load() && ctx.Err() == nil {
		return ErrRestart
	}
	return err
}

// States of the supervisor as status shows them.
const (
	stateStarting = "starting"
	stateReady    = "ready"
	stateDraining = "draining"
	stateDrained  = "drained" // by an operator, until it is resumed
	stateStopping = "stopping"
)

// sampleInterval is how often /proc is read. A leak of 50 descriptors a second must be seen well before a limit of 256.
const sampleInterval = time.Second

type supervisor struct {
	o       Options
	now     func() time.Time
	started time.Time
	state   atomic.Value // one of the states above

	reloading sync.Mutex // held by the one reload that runs
	current   atomic.Pointer[config.Config]
	unit      atomic.Pointer[systemd.Settings] // nil if this is no service
	enforced  worker.Enforced                  // limits of workers that the kernel holds
	joined    func(workers int)                // leaves workers the descriptors that they need
	openFiles func() (int64, error)            // the limit of them
	secrets   *redaction

	lock      *store.HomeLock
	book      *logs.Book
	log       hclog.Logger
	store     *store.State
	telemetry *store.Telemetry
	boards    *boards
	journal   *event.Journal
	hub       *turn.Hub
	sampler   *sample.Sampler
	orphans   *worker.Orphans
	fleet     *fleet
	plugins   *pluginHost
	history   *historian
	control   *control.Server
	heart     *control.Heart
	notify    *systemd.Notifier
	lines     chan string // status lines for the service manager
	served    func()      // ends what asks for more time for the start
	said      string      // the last of them, by the goroutine of the sampler

	pairing  *pairing.Store
	adapters *adapterWatch
	written  *boardWatch

	shutdownOnce sync.Once
	again        atomic.Bool   // the end is for another start
	shutdown     chan struct{} // closed when the control socket or a chat asks for the end
	endedBy      string        // who did; set before

	closers []func() // run in reverse order by close
}

// config is the configuration in force.
func (s *supervisor) config() *config.Config { return s.current.Load() }

func (s *supervisor) onClose(f func()) { s.closers = append(s.closers, f) }

func (s *supervisor) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

// open makes everything but the workers. What it made is undone by close, whether or not it succeeds.
func (s *supervisor) open(ctx context.Context) error {
	c := s.config()
	list, err := specs(c) // first: an incomplete installation leaves no trace in the home
	if err != nil {
		return err
	}
	plugins, broken := catalogue.Open(c.Home, s.now)
	limit, err := s.openFiles()
	workers := len(list) + enabledPlugins(plugins)
	if err == nil {
		err = enoughDescriptors(limit, workers)
	}
	if err != nil {
		return err
	}
	if s.lock, err = store.LockHome(c.Home); err != nil {
		return err
	}
	s.onClose(func() { _ = s.lock.Unlock() })
	s.book = logs.NewBook(logs.Options{
		Out: s.o.Stderr, JSON: s.o.LogJSON, Level: hclog.LevelFromString(c.Supervisor.LogLevel), Redact: s.secrets.text, Journal: s.toJournal(),
	})
	s.onClose(s.book.Close)
	s.log = s.book.Logger()
	// Libraries that know no other way (go-plugin) write to the standard logger.
	log.SetOutput(s.log.Named("library").StandardWriter(&hclog.StandardLoggerOptions{InferLevels: true}))
	log.SetFlags(0)
	for _, w := range c.Warnings {
		s.log.Warn(w)
	}
	if s.notify, err = systemd.NewNotifier(); err != nil {
		return err
	}
	if err := s.openStores(ctx); err != nil {
		return err
	}
	s.watchProcesses(list, limit, workers)
	s.hub = turn.New(turn.Config{
		Store: s.store, Boards: s.boards.get, BoardNames: s.boards.names,
		Now: s.now, Log: s.log.Named("turns"), Event: s.journal.Record,
		Approvals:     approvalPolicy(c),
		TurnsPerAgent: c.Supervisor.TurnsPerAgent,
		Platforms:     platforms(c),
		Spill:         spills{dir: filepath.Join(c.Home, spillFolder), now: s.now}.keep,
	})
	s.onClose(s.hub.Close)
	s.pairing = pairing.New(c.Home, s.now)
	s.adapters = newAdapterWatch(s)
	s.written = &boardWatch{home: c.Home, every: func() time.Duration { return s.config().Kanban.Interval }, log: s.log.Named("boards")}
	s.plugins = s.newPluginHost(plugins, broken)
	if s.fleet, err = s.makeFleet(list); err != nil {
		return err
	}
	s.plugins.begin(s.fleet)
	if s.history, err = newHistorian(s.fleet.seen, s.sampler); err != nil {
		return err
	}
	s.cleanUpAfterTheLast()
	return s.listen()
}

// watchProcesses makes what finds the processes of workers, and has the kernel hold their limits where that can be had. It
// keeps open what so many workers leave of the limit of descriptors.
func (s *supervisor) watchProcesses(list []worker.Spec, limit int64, workers int) {
	sayOpenFiles(s.log, list)
	s.sampler = sample.NewSampler(sample.System, sampleInterval)
	s.orphans = worker.NewOrphans(s.o.RunDir, s.log.Named("orphans"))
	s.joined = leaveRoom(limit, workers, s.sampler.SpendBelow)
	s.sampler.Adopt(s.orphans.Owner)
	s.enforced = worker.Delegate()
	s.log.Info("limits of workers", "memory", keeper(s.enforced.Memory), "processes", keeper(s.enforced.Processes), "why", s.enforced.Why)
}

// cleanUpAfterTheLast removes what a supervisor of this home that was killed could not.
func (s *supervisor) cleanUpAfterTheLast() {
	if n, err := s.orphans.EndLeftovers(); err != nil || n > 0 {
		s.log.Warn("processes of an earlier supervisor were left", "ended", n, "error", err)
	}
	if n, err := worker.CleanRunDir(s.o.RunDir); err != nil || n > 0 {
		s.log.Debug("socket folders of an earlier supervisor were left", "removed", n, "error", err)
	}
	s.wordsLeft().hear()
}

func (s *supervisor) openStores(ctx context.Context) (err error) {
	s.starting(ctx)
	home := s.config().Home
	if err := s.finishRestore(home); err != nil {
		return err
	}
	options := store.Options{Now: s.now, Log: s.log.Named("store"), Keep: s.o.Config.Supervisor.Retention, Waiting: s.waitsFor}
	// Events and boards are read by people and once in a while; the store's own number of readers is for turns. Each is a
	// quarter MiB of page cache, schema and statements, and two descriptors.
	seldom := options
	seldom.Readers = 2
	options.Rollback = s.o.Config.Database.JournalMode == config.JournalDelete
	if s.telemetry, err = store.OpenTelemetry(ctx, filepath.Join(home, "supervisor.db"), seldom); err != nil {
		return err
	}
	s.onClose(func() { s.closeStore("supervisor.db", s.telemetry) })
	s.journal = event.NewJournal(redactedEvents{s.telemetry, s.secrets.text}, s.log.Named("journal"), s.now)
	s.onClose(s.journal.Close)
	if s.store, err = store.OpenState(ctx, filepath.Join(home, "state.db"), options); err != nil {
		return err
	}
	s.onClose(func() { s.closeStore("state.db", s.store) })
	seldom.Rollback = options.Rollback
	s.boards = newBoards(home, seldom)
	s.onClose(func() {
		if err := s.boards.close(); err != nil {
			s.log.Error("close boards", "error", err)
		}
	})
	// The default board is opened at once, so that what is wrong with it is said at the start.
	_, err = s.boards.get(defaultBoard)
	return err
}

func (s *supervisor) closeStore(name string, c io.Closer) {
	if err := c.Close(); err != nil {
		s.log.Error("close store", "store", name, "error", err)
	}
}

func (s *supervisor) listen() error {
	listener, err := s.o.Listener, error(nil)
	if listener == nil {
		listener, err = control.Listen(config.SocketPath(s.o.RunDir))
	}
	if err != nil {
		return err
	}
	s.control = control.Serve(listener, control.Services{
		Workers: s.fleet, Hub: s.hub, Journal: s.journal, Logs: s.book, Answers: s.store.Answers, Operations: operations{s},
		Status:   s.status,
		Shutdown: s.end,
		Register: func(g *grpc.Server) {
			s.hub.RegisterBoards(g)
			s.hub.RegisterConversations(g)
			s.plugins.register(g)
			controlv1.RegisterMaintenanceServer(g, maintenance.New(s.o.Config.Home, ownStores{s}))
			controlv1.RegisterBoardStatisticsServer(g, boardStatistics{boards: s.boards})
			controlv1.RegisterPairingServer(g, NewPairing(s.pairing))
			state := filepath.Join(s.o.Config.Home, "state.db")
			controlv1.RegisterSessionsServer(g, sessions.New(s.store, func() error { return store.NotHeld(state) }))
		},
		Refuse: s.plugins.refuse,
	}, s.log.Named("control"))
	s.onClose(s.control.Close)
	if s.heart, err = control.NewHeart(config.SocketPath(s.o.RunDir)); err != nil {
		return err
	}
	s.onClose(s.heart.Close)
	return nil
}

// supervise runs the workers until it is asked to stop, then stops them.
func (s *supervisor) supervise(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with ctx, which ends with this function
		select {
		case <-s.shutdown:
			cancel()
		case <-ctx.Done():
		}
	}()
	s.recordStart()
	if err := s.hub.Start(ctx); err != nil {
		return err
	}
	// What serves the workers goes on until the last of them is gone.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	workers, stopWorkers := context.WithCancel(background)
	var running sync.WaitGroup
	alive := newPulse(s.lock.Beat)
	for _, f := range []func(time.Time){
		(&sleepWatch{record: s.tell}).beat, alive.beat, (&forgetter{forget: newProgram().forget, idle: s.hub.Quiet}).beat,
		s.fleet.leaks.beat, s.plugins.beat, s.history.look, s.lookAtStatus,
	} {
		s.sampler.After(f)
	}
	running.Go(func() { s.sampler.Run(background) })
	running.Go(func() { alive.run(background) })
	running.Go(func() { s.orphans.Run(background) })
	running.Go(func() { s.fleet.leaks.run(background) })
	running.Go(func() { s.adapters.run(background) })
	running.Go(func() { s.written.run(background) })
	running.Go(func() { s.plugins.run(background) })
	running.Go(func() { s.keepSnapshots(background) })
	running.Go(func() { s.lookAtUnit(ctx) })
	running.Go(func() { s.tellServiceManager(background) })
	s.tellOfRestart(ctx)
	s.fleet.start(workers)
	running.Go(func() { s.becomeReady(ctx) })

	<-ctx.Done()
	s.stop(s.whoEnds(ctx))
	stopWorkers()
	s.fleet.wait()
	stopBackground()
	running.Wait()
	return nil
}

// end makes supervise stop, as SIGTERM does; by says who wants it.
func (s *supervisor) end(by string) {
	s.shutdownOnce.Do(func() {
		s.endedBy = by
		close(s.shutdown)
	})
}

// whoEnds says on whose account the supervisor stops, once ctx has ended: who asked it, or the signal that it got.
func (s *supervisor) whoEnds(ctx context.Context) string {
	select {
	case <-s.shutdown:
		return "asked by " + s.endedBy
	default:
	}
	// That of a signal is a Canceled, too, and says which it was.
	if cause := context.Cause(ctx); cause != nil && cause.Error() != context.Canceled.Error() {
		return cause.Error()
	}
	return "asked to"
}

// becomeReady tells systemd and people that everything serves. From then on it takes requests for a reload: one that comes
// earlier waits, as READY=1 after a reload would be a lie before.
func (s *supervisor) becomeReady(ctx context.Context) {
	if err := s.fleet.awaitReady(ctx); err != nil {
		return
	}
	if !s.state.CompareAndSwap(stateStarting, stateReady) {
		return
	}
	s.served()
	took := s.now().Sub(s.started).Round(time.Millisecond)
	s.record(event.KindSupervisorReady, fmt.Sprintf("all required workers serve after %v", took))
	s.log.Info("ready", "after", took, "model", s.config().Model.Provider)
	s.say(s.notify.Ready(s.statusLine()))
	if s.o.Ready != nil {
		s.o.Ready()
	}
	giveBack()
	settled := time.AfterFunc(settleTime, giveBack)
	defer settled.Stop()
	s.reloadOnRequest(ctx, s.o.Hangup)
}

// cleanupBudget is what the stop may take after the drain: two ladders of workers side by side (gateways, then the
// rest), each at most SIGTERM, SIGQUIT and SIGKILL, and the databases' last checkpoints. The unit that package systemd
// renders allows 30 s beside the drain, so this must stay below.
const cleanupBudget = 20 * time.Second

// farewellTime is how long the chats with open turns are told of the stop: the rest of the drain is for their turns.
const farewellTime = 2 * time.Second

// stop ends turns and workers in order. Turns that do not finish within the budget stay leased in the store and are
// resumed at the next start.
func (s *supervisor) stop(why string) {
	budget := s.config().Supervisor.DrainTimeout
	s.state.Store(stateDraining)
	s.say(s.notify.Stopping(budget + cleanupBudget))
	s.record(event.KindSupervisorStopping, fmt.Sprintf("%s; draining for up to %v", why, budget))
	s.log.Info("stopping", "why", why, "drain", budget)
	drain, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	tell, cancel := context.WithTimeout(drain, farewellTime)
	s.hub.Farewell(tell, s.again.Load())
	cancel()
	if n := s.hub.Drain(drain); n > 0 {
		s.log.Warn("turns did not finish in the drain; they go on after the next start", "turns", n)
		s.letGo()
	}
	s.state.Store(stateStopping)
	// Each has a half of its own: gateways that do not end take nothing from the agents.
	s.fleet.stop(cleanupBudget/2, firstToStop...)
	s.fleet.stop(cleanupBudget/2, lastToStop...)
}

// lastSends is how long replies that are being sent when the drain runs out may take.
const lastSends = 3 * time.Second

// letGo ends what runs when the budget is spent, so that no worker's own drain waits for it once more.
func (s *supervisor) letGo() {
	ctx, cancel := context.WithTimeout(context.Background(), lastSends)
	defer cancel()
	s.hub.Settle(ctx)
	s.hub.Release(ctx)
	s.hub.Close()
}

func (s *supervisor) record(kind, message string) {
	s.journal.Record(store.Event{Kind: kind, PID: os.Getpid(), Message: message})
}

// say logs that a message to systemd was lost; nothing else follows from it.
func (s *supervisor) say(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("service manager was not told", "error", err)
	}
}
