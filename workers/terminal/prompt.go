package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// A prompt is the line editor of a terminal. Between two edits the terminal is in its usual mode, so that Ctrl-C and
// Ctrl-Z work while an answer comes.
type prompt struct {
	in, out *os.File
	keys    *keys
	ascii   bool // as of the screen
	history term.History

	mu   sync.Mutex
	line *term.Terminal // nil between two edits
}

const (
	promptText   = "› "
	continueText = "… "
)

func newPrompt(in, out *os.File, k *keys, ascii bool) *prompt {
	return &prompt{in: in, out: out, keys: k, ascii: ascii, history: term.NewTerminal(nil, "").History}
}

// shown is one of the signs above, as the terminal can show it.
func (p *prompt) shown(sign string) string {
	if p.ascii {
		return plainSigns.Replace(sign)
	}
	return sign
}

// begin puts a line editor on the screen. Each edit has a new one: one that was ended by Ctrl-C keeps keys it has read.
func (p *prompt) begin(e *editor) *term.Terminal {
	line := term.NewTerminal(e, p.shown(promptText))
	line.History = p.history
	line.SetBracketedPasteMode(true)
	p.mu.Lock()
	p.line = line
	p.mu.Unlock()
	p.resize()
	return line
}

func (p *prompt) end(line *term.Terminal) {
	p.mu.Lock()
	p.line = nil
	p.mu.Unlock()
	line.SetBracketedPasteMode(false)
}

func (p *prompt) resize() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, h, err := term.GetSize(int(p.out.Fd())); err == nil && w > 0 && p.line != nil {
		_ = p.line.SetSize(w, h)
	}
}

// watchSize follows the window until the returned function is called.
func (p *prompt) watchSize() func() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-c:
				p.resize()
			case <-done:
				return
			}
		}
	})
	return func() { signal.Stop(c); close(done); watching.Wait() }
}

// errBroken says that Ctrl-C ended the edit.
var errBroken = errors.New("interrupted")

// read edits one message: several lines if they were pasted or end with a backslash. It returns io.EOF at Ctrl-D and
// errBroken at Ctrl-C.
func (p *prompt) read(ctx context.Context) (string, error) {
	state, err := term.MakeRaw(int(p.in.Fd()))
	if err != nil {
		return "", fmt.Errorf("terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(p.in.Fd()), state) }()
	e := &editor{keys: p.keys, ctx: ctx, out: p.out}
	editing := p.begin(e)
	defer p.end(editing)
	var lines []string
	for {
		line, err := editing.ReadLine()
		switch {
		case errors.Is(err, term.ErrPasteIndicator):
			lines = append(lines, line)
		case err != nil && e.broken.Load():
			_, _ = io.WriteString(p.out, "\r\n")
			return "", errBroken
		case err != nil:
			return "", err
		case strings.HasSuffix(line, `\`):
			lines = append(lines, strings.TrimSuffix(line, `\`))
		default:
			return strings.TrimRight(strings.Join(append(lines, line), "\n"), "\n"), nil
		}
		editing.SetPrompt(p.shown(continueText))
	}
}

// notice shows a text above the line that is edited, or as a line of the screen.
func (p *prompt) notice(s *screen, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line != nil {
		_, _ = p.line.Write([]byte(p.shown("✉ ") + clean(text) + "\n"))
		return
	}
	s.tell("✉ " + text)
}

// interactive is the chat of a person at a terminal.
func (c *conversation) interactive(ctx context.Context, p *prompt) error {
	defer p.watchSize()()
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	for _, chat := range []string{mainChat, queryChat} {
		background.Go(func() {
			c.client.Notices(ctx, chat, func(text string) { p.notice(c.screen, text) })
		})
	}
	for {
		text, err := c.edit(ctx, p)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errBroken):
			if c.pressed.again(c.now()) {
				return errLeft
			}
			c.screen.tell("(Ctrl-C again leaves; so does /quit)")
			continue
		case err != nil:
			return err
		}
		if leave, err := c.answer(ctx, text); leave || err != nil {
			return err
		}
	}
}

// edit reads a message.
func (c *conversation) edit(ctx context.Context, p *prompt) (text string, err error) {
	err = c.attend(ctx, func(ctx context.Context) (err error) {
		text, err = p.read(ctx) // there Ctrl-C is a key; it is a signal just before
		return err
	})
	return text, err
}

// answer obeys or sends one line. An error of one message is said and does not end the chat.
func (c *conversation) answer(ctx context.Context, text string) (leave bool, err error) {
	if strings.TrimSpace(text) == "" {
		return false, nil
	}
	handled, err := c.command(ctx, text)
	if errors.Is(err, errQuit) {
		return true, nil
	}
	if !handled {
		_, err = c.ask(ctx, text)
	}
	if err != nil && !errors.Is(err, errLeft) && ctx.Err() == nil {
		c.screen.tell(fmt.Sprintf("! %v", err))
		err = nil
	}
	return false, err
}
