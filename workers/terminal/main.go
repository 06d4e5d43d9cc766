package terminal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// mainChat is the chat of those who talk.
const mainChat = "main"

// queryChat is the chat of single questions. They are apart from the person's conversation, so that a script neither
// waits for it nor writes into it.
const queryChat = "query"

// queryPatience is how long a single question waits for a supervisor that is gone. A restart takes a second; a script
// should not hang for ever.
const queryPatience = time.Minute

type options struct {
	socket  string
	query   string
	session string
	fresh   bool
	top     bool
	ascii   bool
}

// Main runs hermes-terminal and returns its exit code.
func Main(args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ipc.ExitOK
	case errors.Is(err, errVersion):
		fmt.Println("hermes-terminal", ipc.Version())
		return ipc.ExitOK
	case err != nil:
		fmt.Fprintf(os.Stderr, "hermes-terminal: %v\n", err)
		return ipc.ExitUsage
	}
	if err := run(context.Background(), o, os.Stdin, os.Stdout, os.Stderr); err != nil {
		var ended endedError
		if !errors.As(err, &ended) {
			fmt.Fprintf(os.Stderr, "hermes-terminal: %s\n", clean(err.Error()))
		}
		return ipc.ExitCode(err)
	}
	return ipc.ExitOK
}

// What a script learns whose question was given up by Ctrl-C.
var (
	errLeftEarly  = errors.New("left before the reply; the turn goes on, and its reply is stored in its session")
	errLeftUnsent = errors.New("left before the supervisor had taken the question; it has to be asked again")
)

var errVersion = errors.New("version")

func parse(args []string) (options, error) {
	var o options
	if len(args) > 0 && (args[0] == "version" || args[0] == "--version") {
		return o, errVersion
	}
	f := flag.NewFlagSet("hermes-terminal", flag.ContinueOnError)
	f.StringVar(&o.socket, "socket", "", "control socket of the supervisor")
	f.StringVar(&o.query, "q", "", "ask this and leave; - reads it from stdin")
	f.StringVar(&o.session, "session", "", "session to go on in")
	f.BoolVar(&o.fresh, "new", false, "begin a new session")
	f.BoolVar(&o.top, "top", false, "show the workers instead of a chat")
	f.BoolVar(&o.ascii, "ascii", false, "show nothing but ASCII, other than texts of people and models")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.socket == "" || f.NArg() > 0 {
		return o, errors.New("this is the chat of hermes-supervisor and is started by it; run: hermes-supervisor chat")
	}
	return o, nil
}

// endedError is a turn that ended without an answer, of which all has been said.
type endedError struct{ outcome turnv1.Outcome }

func (e endedError) Error() string { return e.outcome.String() }

func run(ctx context.Context, o options, in, out, errOut *os.File) error {
	conn, err := Dial(o.socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if o.top {
		return top(ctx, conn, o, in, out)
	}
	signals, stop := catchSignals()
	defer stop()
	c := &conversation{
		client: NewClient(conn, 0), signals: signals, now: time.Now,
		user: os.Getenv("USER"), chatID: mainChat, sessionID: o.session, fresh: o.fresh,
	}
	if o.query != "" {
		return c.query(ctx, o, in, out, errOut)
	}
	c.screen = newScreen(out, colourful(out), false)
	c.screen.ascii = o.ascii
	c.client.gone = func(err error) { c.screen.tell(waiting(err, absent(ctx, o.socket))) }
	c.client.back = func() { c.screen.tell("(it is back)") }
	c.warn = c.screen.tell
	c.keys = readKeys(in)
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return c.lines(ctx)
	}
	status, err := controlv1.NewControlClient(conn).Status(ctx, &controlv1.StatusRequest{})
	if err != nil {
		return fmt.Errorf("control socket %s: %w", o.socket, err)
	}
	c.screen.tell(banner(status))
	err = c.interactive(ctx, newPrompt(in, out, c.keys, o.ascii))
	if errors.Is(err, errLeft) {
		return nil // leaving a chat is its usual end
	}
	return err
}

// banner is the first thing a person reads.
func banner(r *controlv1.StatusResponse) string {
	m := r.GetModel()
	lines := []string{fmt.Sprintf("hermes-supervisor %s, %d workers", r.GetSupervisor().GetVersion(), len(r.GetWorkers()))}
	lines = append(lines, fmt.Sprintf("model: %s (%s)", strings.TrimSpace(m.GetProvider()+" "+distinct(m.GetName(), m.GetProvider())), m.GetReason()))
	for _, w := range r.GetWarnings() {
		lines = append(lines, "warning: "+w)
	}
	return strings.Join(append(lines, "/help shows what can be typed; Ctrl-C stops an answer, twice leaves"), "\n")
}

func distinct(name, other string) string {
	if name == other {
		return ""
	}
	return name
}

func colourful(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// query asks one question and prints the reply alone on out. What happens on the way is for a person who looks.
func (c *conversation) query(ctx context.Context, o options, in, out, errOut *os.File) error {
	text := o.query
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(in, ipc.MaxMessageBytes/2))
		if err != nil {
			return fmt.Errorf("read the question: %w", err)
		}
		text = strings.TrimRight(string(b), "\n")
	} else if term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(errOut.Fd())) {
		c.keys = readKeys(in)
	}
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("the question is empty: %w", ipc.ErrInvalid)
	}
	var progress io.Writer = io.Discard
	if term.IsTerminal(int(errOut.Fd())) {
		progress = errOut
	}
	c.screen = newScreen(progress, colourful(errOut), true)
	c.screen.ascii = o.ascii
	c.warn = func(text string) { fmt.Fprintln(errOut, clean(text)) }
	c.client.patience = queryPatience
	c.client.gone = func(err error) { c.screen.tell(waiting(err, absent(ctx, o.socket))) }
	c.client.back = func() { c.screen.tell("(it is back)") }
	if c.sessionID == "" {
		c.chatID, c.fresh = queryChat, true
	}
	final, err := c.ask(ctx, text)
	if errors.Is(err, errUnsent) {
		return errLeftUnsent
	}
	if errors.Is(err, errLeft) {
		return errLeftEarly
	}
	if err != nil {
		return err
	}
	return printReply(final, out, errOut)
}

// printReply writes the reply, and tells a turn that failed from one that did not.
func printReply(f *turnv1.Final, out, errOut io.Writer) error {
	if f.Text != "" {
		if _, err := fmt.Fprintln(out, clean(f.Text)); err != nil {
			return fmt.Errorf("write the reply: %w", err)
		}
	}
	if f.Outcome == turnv1.Outcome_OUTCOME_COMPLETED || f.Outcome == turnv1.Outcome_OUTCOME_BUDGET {
		return nil
	}
	if f.Error != "" {
		fmt.Fprintf(errOut, "hermes-terminal: %s\n", clean(f.Error))
	}
	return endedError{f.Outcome}
}
