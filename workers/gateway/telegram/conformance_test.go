package telegram

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

func TestConformance(t *testing.T) {
	gatewaytest.Suite{Name: Platform, New: func(t *testing.T) gatewaytest.Platform { return newStandIn(t) }}.Run(t)
}

// A standIn is the Bot API server as the conformance suite drives it.
type standIn struct {
	*bottest.Server
	url, locks string

	mu     sync.Mutex
	ids    map[string]int // of messages, by chat and the suite's id
	cuts   int
	strict bool
}

func newStandIn(t *testing.T) *standIn {
	s := &standIn{Server: bottest.New(), locks: t.TempDir(), ids: map[string]int{}}
	s.url = s.Listen()
	s.Inject(s.fault)
	return s
}

func (s *standIn) Settings() map[string]any {
	return map[string]any{
		"enabled": true, "base_url": s.url, "lock_dir": s.locks, "messages_per_second": 1000,
		"retry_first": "1ms", "retry_longest": "4ms",
	}
}

func (s *standIn) Secrets() map[string]string {
	return map[string]string{tokenName: bottest.Token, allowedUsersName: "*"}
}

func chatNumber(chat string) int64 {
	n, err := strconv.ParseInt(chat, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (s *standIn) Say(chat, id, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := chatNumber(chat)
	s.know(n, chat)
	s.ids[chat+"/"+id] = s.Server.Say(bottest.Post{From: n, Text: text})
}

func (s *standIn) know(n int64, name string) {
	if s.All(n) == nil {
		s.Private(n, name)
	}
}

func (s *standIn) Again(chat, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Repeat(chatNumber(chat), s.ids[chat+"/"+id])
}

func (s *standIn) Shown(chat string) []string { return s.Texts(chatNumber(chat)) }

func (s *standIn) FailConnects(ctx context.Context, n int) error {
	done := make(chan error, 1)
	go func() { done <- s.Drop(ctx, n) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Millisecond): // connections that stand make no new ones
			s.Server.Cut()
		}
	}
}

func (s *standIn) Flood(chat string, d time.Duration) {
	f := s.Fail(bottest.Fault{Kind: bottest.Refuse, Status: 429, RetryAfter: int((d + time.Second - 1) / time.Second), Chat: chatNumber(chat)})
	time.AfterFunc(d, func() { s.Mend(f) })
}

func (s *standIn) RefuseFormatting(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strict = on
}

func (s *standIn) CutAnswers(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts = n
}

// fault runs under the server's lock, so what it reads has one of its own.
func (s *standIn) fault(c bottest.Call) *bottest.Fault {
	if c.Method != "sendMessage" && c.Method != "editMessageText" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strict && c.Params["entities"] != "" {
		return &bottest.Fault{Kind: bottest.Refuse, Status: 400, Description: "Bad Request: can't parse entities: Can't find end of the entity"}
	}
	if s.cuts > 0 {
		s.cuts--
		return &bottest.Fault{Kind: bottest.CutAfter}
	}
	return nil
}

func (s *standIn) Block(chat string) {
	s.know(chatNumber(chat), chat)
	s.Server.Block(chatNumber(chat), "bot was blocked by the user")
}

// The suite needs every ability of a platform to be tested.
var (
	_ gatewaytest.Flooder   = (*standIn)(nil)
	_ gatewaytest.Formatter = (*standIn)(nil)
	_ gatewaytest.Cutter    = (*standIn)(nil)
	_ gatewaytest.Blocker   = (*standIn)(nil)
)

func TestTheStandInHidesNothing(t *testing.T) {
	s := newStandIn(t)
	defer s.Close()
	s.Say("1001", "1", "hello")
	if got := strings.Join(s.Shown("1001"), ""); got != "" {
		t.Errorf("the person's own words are shown as the bot's: %q", got)
	}
}
