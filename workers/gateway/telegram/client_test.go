package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// What became of a request decides whether it may be repeated, so it is told apart for each way to fail.
func TestWhetherARequestMayHaveHappened(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault *bottest.Fault
		may   bool
		code  int
		after time.Duration
	}{
		{name: "cut before the effect", fault: &bottest.Fault{Kind: bottest.CutBefore}, may: true}, // it looks the same
		{name: "cut after it", fault: &bottest.Fault{Kind: bottest.CutAfter}, may: true},
		{name: "no answer in time", fault: &bottest.Fault{Kind: bottest.Hang}, may: true},
		{name: "a page of a proxy", fault: &bottest.Fault{Kind: bottest.Garbage, Status: 403}, may: true},
		{name: "bad gateway", fault: &bottest.Fault{Kind: bottest.Refuse, Status: 502}, may: true, code: 502},
		{name: "refused", fault: &bottest.Fault{Kind: bottest.Refuse, Status: 400}, code: 400},
		{name: "flood", fault: &bottest.Fault{Kind: bottest.Refuse, Status: 429, RetryAfter: 7}, code: 429, after: 7 * time.Second},
		{name: "flood without a time", fault: &bottest.Fault{Kind: bottest.Refuse, Status: 429}, code: 429, after: time.Second},
		{name: "unknown chat", code: 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bottest.New()
			defer b.Close()
			if c.fault != nil {
				b.Fail(*c.fault)
			}
			client := newClient(b.Listen(), bottest.Token, route{}, nil)
			defer client.closeIdle()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			err := client.call(ctx, "sendMessage", map[string]any{"chat_id": 5, "text": "x"}, nil)
			if err == nil {
				t.Fatal("no error")
			}
			after, _ := retryAfter(err)
			if mayHaveHappened(err) != c.may || codeOf(err) != c.code || after != c.after {
				t.Errorf("%v: may have happened %v, code %d, after %s", err, mayHaveHappened(err), codeOf(err), after)
			}
		})
	}
	nobody := newClient("http://127.0.0.1:1", bottest.Token, route{}, nil)
	if err := nobody.call(t.Context(), "sendMessage", nil, nil); err == nil || mayHaveHappened(err) {
		t.Errorf("a server that is not there: %v", err)
	}
}

func TestTheEndOfAContextIsSeen(t *testing.T) {
	b := bottest.New()
	defer b.Close()
	b.Fail(bottest.Fault{Kind: bottest.Hang})
	client := newClient(b.Listen(), bottest.Token, route{}, nil)
	defer client.closeIdle()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := client.call(ctx, "getMe", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func FuzzAnswersAreDecoded(f *testing.F) {
	f.Add(200, `{"ok":true,"result":{"message_id":5}}`)
	f.Add(429, `{"ok":false,"error_code":429,"description":"x","parameters":{"retry_after":9223372036854775807}}`)
	f.Add(502, `<html>`)
	f.Add(200, `{"ok":true}`)
	f.Add(200, `{"ok":true,"result":null}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		var m sent
		err := decodeAnswer("sendMessage", status, []byte(body), &m)
		if d, flooded := retryAfter(err); flooded && (d <= 0 || d > maxRetryAfter*time.Second) {
			t.Errorf("wait %s", d)
		}
		if err == nil && !json.Valid([]byte(body)) {
			t.Errorf("%q is taken for an answer", body)
		}
	})
}

func FuzzUpdatesAreDecoded(f *testing.F) {
	f.Add(`{"update_id":1,"message":{"message_id":2,"chat":{"id":3,"type":"private"},"from":{"id":4},"text":"/help@x y","entities":[{"type":"mention","offset":9,"length":99}]}}`)
	f.Add(`{"update_id":1,"message":{"text":5}}`)
	f.Add(`{"update_id":1,"callback_query":{"id":"1","data":"y:1"}}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, raw string) {
		u, _ := decodeUpdate(json.RawMessage(raw))
		me := account{ID: 1, Username: "bot"}
		for _, m := range [...]*models.Message{u.Message, u.EditedMessage} {
			if m == nil || own(m, me) {
				continue
			}
			g := newGroups(defaults())
			g.addressed(m, me)
			newIncoming([]*models.Message{m}, false, g, me)
			attachments(m)
		}
	})
}

func TestNamesOfFilesAreMadeSafe(t *testing.T) {
	for in, want := range map[string]string{
		"report.pdf": "report.pdf", "../../etc/passwd": "etc_passwd", "": "file", "…": "file", ".bashrc": "bashrc", "a b\n.pdf": "a_b_.pdf",
		strings.Repeat("x", 100) + ".pdf": strings.Repeat("x", 60) + ".pdf",
	} {
		if got := safeName(in); got != want {
			t.Errorf("safeName(%q) = %q, want %q", in, got, want)
		}
	}
}
