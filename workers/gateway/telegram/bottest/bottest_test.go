package bottest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type answer struct {
	OK          bool
	Result      json.RawMessage
	ErrorCode   int `json:"error_code"`
	Description string
	Parameters  struct {
		RetryAfter      int   `json:"retry_after"`
		MigrateToChatID int64 `json:"migrate_to_chat_id"`
	}
}

// A user calls methods of a server in memory.
type user struct {
	t    *testing.T
	http *http.Client
}

func with(t *testing.T, f func(t *testing.T, s *Server, u *user)) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		s.Private(5, "Ann")
		u := &user{t: t, http: &http.Client{Transport: &http.Transport{DialContext: s.Pipe()}}}
		defer func() {
			u.http.CloseIdleConnections()
			s.Close()
		}()
		f(t, s, u)
	})
}

func (u *user) call(method string, params map[string]any) answer {
	u.t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		u.t.Fatal(err)
	}
	a, err := u.post(Token, method, "application/json", bytes.NewReader(raw))
	if err != nil {
		u.t.Fatal(err)
	}
	return a
}

func (u *user) post(token, method, kind string, body io.Reader) (a answer, err error) {
	resp, err := u.http.Post(PipeURL+"/bot"+token+"/"+method, kind, body)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&a)
	if err == nil && a.OK != (resp.StatusCode == 200) {
		u.t.Errorf("%s: status %d with %+v", method, resp.StatusCode, a)
	}
	return a, err
}

func (u *user) poll(offset int64, timeout int) ([]int64, answer) {
	a := u.call("getUpdates", map[string]any{"offset": offset, "timeout": timeout})
	var list []struct {
		ID int64 `json:"update_id"`
	}
	if a.OK {
		if err := json.Unmarshal(a.Result, &list); err != nil {
			u.t.Fatal(err)
		}
	}
	var ids []int64
	for _, l := range list {
		ids = append(ids, l.ID)
	}
	return ids, a
}

func TestRefusalsReadAsPublished(t *testing.T) {
	long := strings.Repeat("x", 4097)
	for _, c := range []struct {
		name, method string
		params       map[string]any
		code         int
		desc         string
	}{
		{"unknown method", "sendTelegram", nil, 404, "Not Found: method not found"},
		{"unknown chat", "sendMessage", map[string]any{"chat_id": 6, "text": "x"}, 400, "Bad Request: chat not found"},
		{"empty", "sendMessage", map[string]any{"chat_id": 5, "text": " \n"}, 400, "Bad Request: message text is empty"},
		{"too long", "sendMessage", map[string]any{"chat_id": 5, "text": long}, 400, "Bad Request: message is too long"},
		{"too long in UTF-16", "sendMessage", map[string]any{"chat_id": 5, "text": strings.Repeat("😀", 2049)}, 400, "Bad Request: message is too long"},
		{"entity beyond the end", "sendMessage", map[string]any{"chat_id": 5, "text": "x", "entities": []Entity{{Type: "bold", Length: 2}}}, 400, "Bad Request: can't parse entities"},
		{"entities that overlap", "sendMessage", map[string]any{"chat_id": 5, "text": "xyz", "entities": []Entity{{Type: "bold", Length: 2}, {Type: "italic", Offset: 1, Length: 2}}}, 400, "Bad Request: can't parse entities"},
		{"unknown topic", "sendMessage", map[string]any{"chat_id": 5, "text": "x", "message_thread_id": 9}, 400, "Bad Request: message thread not found"},
		{"nothing to reply to", "sendMessage", map[string]any{"chat_id": 5, "text": "x", "reply_parameters": map[string]any{"message_id": 1}}, 400, "Bad Request: message to be replied not found"},
		{"nothing to edit", "editMessageText", map[string]any{"chat_id": 5, "message_id": 1, "text": "x"}, 400, "Bad Request: message to edit not found"},
		{"nothing to delete", "deleteMessage", map[string]any{"chat_id": 5, "message_id": 1}, 400, "Bad Request: message to delete not found"},
		{"long data of a button", "sendMessage", map[string]any{"chat_id": 5, "text": "x", "reply_markup": map[string]any{"inline_keyboard": [][]Button{{{Text: "a", Data: strings.Repeat("x", 65)}}}}}, 400, "Bad Request: BUTTON_DATA_INVALID"},
		{"old query", "answerCallbackQuery", map[string]any{"callback_query_id": "1"}, 400, "Bad Request: query is too old"},
		{"bad command", "setMyCommands", map[string]any{"commands": []any{map[string]any{"command": "Help", "description": "x"}}}, 400, "Bad Request: BOT_COMMAND_INVALID"},
		{"unknown file", "getFile", map[string]any{"file_id": "x"}, 400, "Bad Request: wrong file_id"},
		{"wrong action", "sendChatAction", map[string]any{"chat_id": 5, "action": "dance"}, 400, "Bad Request: wrong parameter action"},
	} {
		t.Run(c.name, func(t *testing.T) {
			with(t, func(t *testing.T, _ *Server, u *user) {
				if a := u.call(c.method, c.params); a.OK || a.ErrorCode != c.code || !strings.HasPrefix(a.Description, c.desc) {
					t.Errorf("%+v, want %d %s", a, c.code, c.desc)
				}
			})
		})
	}
	with(t, func(t *testing.T, _ *Server, u *user) {
		if a, _ := u.post("1:wrong", "getMe", "application/json", nil); a.ErrorCode != 401 || a.Description != "Unauthorized" {
			t.Errorf("a wrong token: %+v", a)
		}
	})
}

func TestParametersComeInFourWays(t *testing.T) {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("chat_id", "5")
	_ = parts.WriteField("text", "hello")
	_ = parts.Close()
	for kind, body := range map[string]string{
		"application/json":                  `{"chat_id": 5, "text": "hello"}`,
		"application/x-www-form-urlencoded": url.Values{"chat_id": {"5"}, "text": {"hello"}}.Encode(),
		parts.FormDataContentType():         form.String(),
		"":                                  "",
	} {
		with(t, func(t *testing.T, s *Server, u *user) {
			method := "sendMessage"
			if kind == "" {
				method += "?chat_id=5&text=hello"
			}
			if a, err := u.post(Token, method, kind, strings.NewReader(body)); err != nil || !a.OK {
				t.Errorf("%s: %+v %v", kind, a, err)
			}
			if got := s.Texts(5); len(got) != 1 || got[0] != "hello" {
				t.Errorf("%s: %q", kind, got)
			}
		})
	}
}

func TestUpdatesAreConfirmedByTheOffset(t *testing.T) {
	with(t, func(t *testing.T, s *Server, u *user) {
		for range 3 {
			s.Say(Post{From: 5, Text: "x"})
		}
		ids, _ := u.poll(0, 0)
		again, _ := u.poll(0, 0)
		if len(ids) != 3 || fmt.Sprint(ids) != fmt.Sprint(again) {
			t.Fatalf("polls without an offset: %v, %v", ids, again)
		}
		if rest, _ := u.poll(ids[1], 0); len(rest) != 2 || rest[0] != ids[1] {
			t.Errorf("from %d: %v", ids[1], rest)
		}
		if back, _ := u.poll(ids[0], 0); len(back) != 2 {
			t.Errorf("a confirmed update came back: %v", back)
		}
		if last, _ := u.poll(-1, 0); len(last) != 1 || last[0] != ids[2] {
			t.Errorf("the last one: %v", last)
		}
	})
}

func TestALongPollWaits(t *testing.T) {
	with(t, func(t *testing.T, s *Server, u *user) {
		begin := time.Now()
		if ids, _ := u.poll(0, 50); len(ids) != 0 || time.Since(begin) != 50*time.Second {
			t.Errorf("%v after %s", ids, time.Since(begin))
		}
		go func() {
			time.Sleep(7 * time.Second)
			s.Say(Post{From: 5, Text: "x"})
		}()
		begin = time.Now()
		if ids, _ := u.poll(0, 50); len(ids) != 1 || time.Since(begin) != 7*time.Second {
			t.Errorf("%v after %s", ids, time.Since(begin))
		}
	})
}

func TestTwoPollersConflict(t *testing.T) {
	with(t, func(t *testing.T, s *Server, u *user) {
		first := make(chan answer)
		go func() {
			_, a := u.poll(0, 50)
			first <- a
		}()
		synctest.Wait()
		if _, a := u.poll(0, 0); !a.OK {
			t.Errorf("the newer poll: %+v", a)
		}
		if a := <-first; a.ErrorCode != 409 || !strings.Contains(a.Description, "terminated by other getUpdates") {
			t.Errorf("the older poll: %+v", a)
		}
		s.SetWebhook("https://example.com")
		if _, a := u.poll(0, 0); a.ErrorCode != 409 || !strings.Contains(a.Description, "webhook is active") {
			t.Errorf("with a webhook: %+v", a)
		}
	})
}

func TestMessagesAreEdited(t *testing.T) {
	with(t, func(t *testing.T, s *Server, u *user) {
		u.call("sendMessage", map[string]any{"chat_id": 5, "text": "one"})
		id := s.Messages(5)[0].ID
		edit := map[string]any{"chat_id": 5, "message_id": id, "text": "two"}
		if a := u.call("editMessageText", edit); !a.OK {
			t.Errorf("%+v", a)
		}
		if a := u.call("editMessageText", edit); a.OK || !strings.Contains(a.Description, "message is not modified") {
			t.Errorf("the same again: %+v", a)
		}
		if m := s.Messages(5)[0]; m.Text != "two" || len(m.Versions) != 2 {
			t.Errorf("%+v", m)
		}
		theirs := s.Say(Post{From: 5, Text: "mine"})
		if a := u.call("editMessageText", map[string]any{"chat_id": 5, "message_id": theirs, "text": "x"}); a.OK || !strings.Contains(a.Description, "can't be edited") {
			t.Errorf("somebody else's: %+v", a)
		}
	})
}

func TestChatsRefuse(t *testing.T) {
	with(t, func(t *testing.T, s *Server, u *user) {
		s.Group(-1, "Team")
		s.Block(5, "bot was blocked by the user")
		s.Upgrade(-1, -1001)
		if a := u.call("sendMessage", map[string]any{"chat_id": 5, "text": "x"}); a.ErrorCode != 403 || a.Description != "Forbidden: bot was blocked by the user" {
			t.Errorf("blocked: %+v", a)
		}
		if a := u.call("sendMessage", map[string]any{"chat_id": -1, "text": "x"}); a.ErrorCode != 400 || a.Parameters.MigrateToChatID != -1001 {
			t.Errorf("upgraded: %+v", a)
		}
	})
}

func TestLimitsAreCounted(t *testing.T) {
	with(t, func(t *testing.T, s *Server, u *user) {
		s.Limit(2, 0, 10*time.Second, 7)
		for i := range 3 {
			a := u.call("sendMessage", map[string]any{"chat_id": 5, "text": "x"})
			if a.OK != (i < 2) || !a.OK && (a.ErrorCode != 429 || a.Parameters.RetryAfter != 7 || a.Description != "Too Many Requests: retry after 7") {
				t.Errorf("message %d: %+v", i+1, a)
			}
		}
		time.Sleep(10 * time.Second)
		if a := u.call("sendMessage", map[string]any{"chat_id": 5, "text": "x"}); !a.OK {
			t.Errorf("after the window: %+v", a)
		}
	})
}

func TestFaultsHappenBeforeOrAfterTheEffect(t *testing.T) {
	for _, c := range []struct {
		fault    Fault
		effect   bool
		answered bool
	}{
		{Fault{Kind: CutBefore}, false, false}, {Fault{Kind: CutAfter}, true, false}, {Fault{Kind: Hang}, false, false},
		{Fault{Kind: SlowBefore, Delay: time.Minute}, false, false}, {Fault{Kind: SlowAfter, Delay: time.Minute}, true, false},
		{Fault{Kind: SlowAfter, Delay: time.Second}, true, true}, {Fault{Kind: Refuse, Status: 502}, false, true}, {Fault{Kind: Garbage}, false, false},
	} {
		t.Run(fmt.Sprint(c.fault.Kind, c.fault.Delay), func(t *testing.T) {
			with(t, func(t *testing.T, s *Server, u *user) {
				c.fault.Times = 1
				s.Fail(c.fault)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, "POST", PipeURL+"/bot"+Token+"/sendMessage", strings.NewReader(`{"chat_id":5,"text":"x"}`))
				req.Header.Set("Content-Type", "application/json")
				resp, err := u.http.Do(req)
				answered := false
				if err == nil {
					raw, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					answered = json.Valid(raw)
				}
				synctest.Wait()
				if got := len(s.Messages(5)) == 1; got != c.effect || answered != c.answered {
					t.Errorf("effect %v, answered %v", got, answered)
				}
				if a := u.call("getMe", nil); !a.OK {
					t.Errorf("afterwards: %+v", a)
				}
			})
		})
	}
}

func TestFilesAreHandedOut(t *testing.T) {
	with(t, func(t *testing.T, s *Server, u *user) {
		s.Say(Post{From: 5, File: Upload{Name: "a.pdf", Data: []byte("%PDF")}})
		a := u.call("getFile", map[string]any{"file_id": "F1"})
		var f struct {
			Path string `json:"file_path"`
		}
		if err := json.Unmarshal(a.Result, &f); err != nil {
			t.Fatal(err)
		}
		resp, err := u.http.Get(PipeURL + "/file/bot" + Token + "/" + f.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if raw, _ := io.ReadAll(resp.Body); string(raw) != "%PDF" {
			t.Errorf("%q", raw)
		}
	})
}
