package terminal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

const (
	// lookEvery is how often top asks; the supervisor reads its workers as often.
	lookEvery = time.Second
	// lookTimeout bounds one question, so that a supervisor that hangs is said to.
	lookTimeout = 3 * time.Second
	// pastKept is the widest a line of memory can get, in readings.
	pastKept = 240
)

// top shows the workers until a person leaves.
func top(ctx context.Context, conn grpc.ClientConnInterface, o options, in, out *os.File) error {
	if err := drawable(in, out); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newTopModel(ctx, controlv1.NewControlClient(conn), controlv1.NewOperationsClient(conn))
	m.absent = func() bool { return absent(ctx, o.socket) }
	m.ascii = o.ascii
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return nil // Ctrl-C is a way to leave
	}
	return err
}

// drawable says why a picture that moves cannot be shown. hermes-supervisor has asked the same before it became this program.
func drawable(in, out *os.File) error {
	const instead = "for one look use hermes-supervisor ctl status, for a stream hermes-supervisor ctl watch"
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return fmt.Errorf("top needs a terminal: %s: %w", instead, ipc.ErrInvalid)
	}
	if name := os.Getenv("TERM"); name == "" || name == "dumb" {
		return fmt.Errorf("top draws a whole screen, which a terminal of TERM=%q cannot: %s: %w", name, instead, ipc.ErrInvalid)
	}
	return nil
}

// A topModel is what top knows and shows. It changes only in Update.
type topModel struct {
	ctx        context.Context // of all questions
	control    controlv1.ControlClient
	operations controlv1.OperationsClient
	absent     func() bool // nobody is behind the socket
	clock      func() time.Time

	width, height int
	status        *controlv1.StatusResponse
	asked         int                  // questions so far
	open          bool                 // the last of them has no answer yet
	lost          error                // why the last question failed
	gone          bool                 // and that nobody was there
	answered      time.Time            // when the last answer came; before the first one, when it was asked for
	past          map[string][]float64 // memory by worker, newest last
	sort          int                  // in sortings
	chosen        string               // name of a worker
	asking        string               // worker whose restart waits for a yes
	said          string               // what became of the last wish
	plain         bool                 // no colours
	ascii         bool                 // nothing but ASCII
}

// What comes into Update.
type (
	looked struct {
		status *controlv1.StatusResponse
		past   map[string][]float64 // of workers seen for the first time
		err    error
		absent bool // with err: nobody is there
	}
	lookAgain struct{}
	restarted struct {
		name string
		err  error
	}
)

func newTopModel(ctx context.Context, control controlv1.ControlClient, operations controlv1.OperationsClient) *topModel {
	return &topModel{
		ctx: ctx, control: control, operations: operations, absent: func() bool { return false }, clock: time.Now, width: 80, height: 24,
		past: map[string][]float64{}, plain: os.Getenv("NO_COLOR") != "",
	}
}

// Init asks for the first time.
func (m *topModel) Init() tea.Cmd {
	m.answered = m.clock()
	return tea.Batch(m.look(), m.next())
}

// next is the next tick. They come whether or not a question is answered, so that a screen without answers says for how long.
func (m *topModel) next() tea.Cmd {
	return tea.Tick(lookEvery, func(time.Time) tea.Msg { return lookAgain{} })
}

// look asks for the status, and for the past of workers that are new, unless the last question is still open.
func (m *topModel) look() tea.Cmd {
	if m.open {
		return nil
	}
	m.open = true
	m.asked++
	known := map[string]bool{}
	for name := range m.past {
		known[name] = true
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, lookTimeout)
		defer cancel()
		status, err := m.control.Status(ctx, &controlv1.StatusRequest{})
		if err != nil {
			return looked{err: err, absent: m.absent()}
		}
		past := map[string][]float64{}
		since := float64(time.Now().Add(-pastKept*time.Second).UnixMicro()) / 1e6
		for _, w := range status.Workers {
			if known[w.Name] {
				continue
			}
			past[w.Name] = nil
			// Without a past the line begins now.
			if r, err := m.operations.Series(ctx, &controlv1.SeriesRequest{Worker: w.Name, Since: since}); err == nil {
				for _, reading := range r.Readings {
					past[w.Name] = append(past[w.Name], float64(reading.RssBytes))
				}
			}
		}
		return looked{status: status, past: past}
	}
}

// Update takes a key, an answer or a tick.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	case lookAgain:
		return m, tea.Batch(m.look(), m.next())
	case looked:
		m.took(msg)
	case restarted:
		m.said = msg.name + " was restarted"
		if msg.err != nil {
			m.said = fmt.Sprintf("%s was not restarted: %v", msg.name, msg.err)
		}
	}
	return m, nil
}

// took keeps an answer.
func (m *topModel) took(l looked) {
	was, now := m.lost, m.clock()
	m.open, m.lost, m.gone = false, l.err, l.absent
	if l.err != nil {
		if was == nil {
			m.said = "" // of the time before
		}
		return
	}
	if was != nil {
		m.said = "it answers again, after " + now.Sub(m.answered).Truncate(time.Second).String()
	}
	m.status, m.answered = l.status, now
	past := map[string][]float64{}
	for _, w := range l.status.Workers {
		values := append(m.past[w.Name], l.past[w.Name]...)
		values = append(values, float64(w.RssBytes))
		past[w.Name] = values[max(0, len(values)-pastKept):]
	}
	m.past = past
	if rows := m.rows(); len(rows) > 0 && m.at(rows) < 0 {
		m.chosen = rows[0].Name
	}
}

// key obeys a key.
func (m *topModel) key(key string) tea.Cmd {
	if m.asking != "" {
		name := m.asking
		m.asking, m.said = "", ""
		if key == "y" {
			m.said = "restarting " + name + " after what it runs …"
			return m.restart(name)
		}
		return nil
	}
	switch key {
	case "q", "esc", "ctrl+c", "ctrl+d":
		return tea.Quit
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "s":
		m.sort = (m.sort + 1) % len(sortings)
	case "S":
		m.sort = (m.sort + len(sortings) - 1) % len(sortings)
	case "r":
		m.asking = m.chosen
	}
	return nil
}

func (m *topModel) move(by int) {
	rows := m.rows()
	if len(rows) == 0 {
		return
	}
	m.chosen = rows[min(max(m.at(rows)+by, 0), len(rows)-1)].Name
}

// at is the place of the chosen worker, -1 if it is gone.
func (m *topModel) at(rows []*controlv1.WorkerStatus) int {
	return slices.IndexFunc(rows, func(w *controlv1.WorkerStatus) bool { return w.Name == m.chosen })
}

func (m *topModel) restart(name string) tea.Cmd {
	return func() tea.Msg {
		_, err := m.control.RestartWorker(m.ctx, &controlv1.RestartWorkerRequest{Name: name})
		return restarted{name, err}
	}
}

// sortings are the orders that s goes through. The first is that of the supervisor.
var sortings = []struct {
	name string
	more func(*controlv1.WorkerStatus) float64 // nil: as they come
}{
	{"start", nil},
	{"memory", func(w *controlv1.WorkerStatus) float64 { return float64(w.RssBytes) }},
	{"descriptors", func(w *controlv1.WorkerStatus) float64 { return float64(w.Fds) }},
	{"cpu", func(w *controlv1.WorkerStatus) float64 { return w.CpuPercent }},
	{"busy", func(w *controlv1.WorkerStatus) float64 { return float64(w.InFlight) }},
	{"restarts", func(w *controlv1.WorkerStatus) float64 { return float64(w.Restarts) }},
}

// rows are the workers in the chosen order.
func (m *topModel) rows() []*controlv1.WorkerStatus {
	rows := slices.Clone(m.status.GetWorkers())
	if more := sortings[m.sort].more; more != nil {
		slices.SortStableFunc(rows, func(a, b *controlv1.WorkerStatus) int { return cmp.Compare(more(b), more(a)) })
	}
	return rows
}
