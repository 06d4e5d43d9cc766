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
	"time"

	"golang.org/x/term"
)

// A prompt is the line editor of a terminal. Between two edits the terminal is in its usual mode, so that Ctrl-C and
// Ctrl-Z work while an answer comes.
type prompt struct {
	in, out *os.File
	editor  *editor
	line    *term.Terminal

	mu      sync.Mutex
	editing bool
}

const (
	promptText   = "› "
	continueText = "… "
)

func newPrompt(in, out *os.File, k *keys) *prompt {
	e := &editor{keys: k, ctx: context.Background(), out: out}
	p := &prompt{in: in, out: out, editor: e, line: term.NewTerminal(e, promptText)}
	p.resize()
	return p
}

func (p *prompt) resize() {
	if w, h, err := term.GetSize(int(p.out.Fd())); err == nil && w > 0 {
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
	p.setEditing(true)
	p.line.SetBracketedPasteMode(true)
	defer func() {
		p.line.SetBracketedPasteMode(false)
		p.setEditing(false)
		_ = term.Restore(int(p.in.Fd()), state)
	}()
	p.editor.ctx = ctx
	p.editor.broken.Store(false)
	p.line.SetPrompt(promptText)
	var lines []string
	for {
		line, err := p.line.ReadLine()
		switch {
		case errors.Is(err, term.ErrPasteIndicator):
			lines = append(lines, line)
		case err != nil && p.editor.broken.Load():
			_, _ = io.WriteString(p.out, "\r\n")
			return "", errBroken
		case err != nil:
			return "", err
		case strings.HasSuffix(line, `\`):
			lines = append(lines, strings.TrimSuffix(line, `\`))
		default:
			return strings.TrimRight(strings.Join(append(lines, line), "\n"), "\n"), nil
		}
		p.line.SetPrompt(continueText)
	}
}

func (p *prompt) setEditing(on bool) {
	p.mu.Lock()
	p.editing = on
	p.mu.Unlock()
}

// notice shows a text above the line that is edited, or as a line of the screen.
func (p *prompt) notice(s *screen, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.editing {
		_, _ = p.line.Write([]byte("✉ " + clean(text) + "\n"))
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
	for _, chat := range []string{"", queryChat} {
		background.Go(func() {
			c.client.Notices(ctx, chat, func(text string) { p.notice(c.screen, text) })
		})
	}
	var lastBreak time.Time
	for {
		text, err := c.edit(ctx, p)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errBroken):
			if c.now().Sub(lastBreak) < leaveWithin {
				return errLeft
			}
			lastBreak = c.now()
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

// edit reads a message, or returns errLeft when the process is to end.
func (c *conversation) edit(ctx context.Context, p *prompt) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := false
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-c.signals:
				if s != os.Interrupt { // a Ctrl-C during an edit is a key
					ended = true
					cancel()
					return
				}
			}
		}
	})
	text, err := p.read(ctx)
	cancel()
	watching.Wait()
	if ended {
		return "", errLeft
	}
	return text, err
}

// answer obeys or sends one line. An error of one message is said and does not end the chat.
func (c *conversation) answer(ctx context.Context, text string) (leave bool, err error) {
	if strings.TrimSpace(text) == "" {
		return false, nil
	}
	switch c.command(text) {
	case quit:
		return true, nil
	case handled:
		return false, nil
	}
	_, err = c.ask(ctx, text)
	if err != nil && !errors.Is(err, errLeft) && ctx.Err() == nil {
		c.screen.tell(fmt.Sprintf("! %v", err))
		err = nil
	}
	return false, err
}
