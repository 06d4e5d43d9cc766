// Package bottest is a Bot API server for tests: the published methods, answers, errors and limits over real HTTP,
// people who write to the bot, and faults on demand. It knows nothing of the adapter that is tested and shares no
// types with it, so that a misreading of the API on one side is not hidden by the same one on the other.
//
// Time is that of package time, so that it runs in a testing/synctest bubble; use Pipe there instead of Listen.
package bottest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Token is the bot's token. It looks like a real one, so that a search for it in logs means something.
const Token = "4839201:AAGbottest-x7K_q9ZsecretsecretQw2"

// BotID and BotName are the bot's own account.
const (
	BotID   = 4839201
	BotName = "hermes_test_bot"
)

// A Server is one Bot API server with one bot.
type Server struct {
	mu       sync.Mutex
	chats    map[int64]*chat
	updates  []update
	nextID   int64 // of the next update
	nextMsg  int   // of the next message outside of supergroups
	allowed  []string
	arrived  chan struct{} // closed and replaced when an update is queued
	poll     *poller
	polls    int // under way
	maxPolls int
	webhook  string
	files    map[string]file
	queries  map[string]*Query
	commands json.RawMessage
	calls    []Call
	faults   []*Fault
	inject   func(Call) *Fault
	rival    bool
	limiter  *limiter
	open     map[net.Conn]struct{} // connections, see Listen
	accepted int
	drop     int           // connections to close at once
	dropped  chan struct{} // closed when drop has come to 0
	skew     time.Duration // of the server's clock
	shutdown []func()
}

// New returns a server without chats. Its update ids begin at a large number, as real ones do.
func New() *Server {
	return &Server{
		chats: map[int64]*chat{}, nextID: 830_000_001, nextMsg: 1001, arrived: make(chan struct{}),
		files: map[string]file{}, queries: map[string]*Query{}, open: map[net.Conn]struct{}{},
	}
}

// A Call is one request as it was understood, and how it was answered.
type Call struct {
	Time   time.Time
	Method string
	Params map[string]string // values that are not texts are JSON
	Files  map[string]Upload // parts that are files
	Status int               // 0: no answer was given
	Error  string            // description of a refusal
}

// Chat is the chat_id of the call, 0 if it has none.
func (c Call) Chat() int64 {
	id, _ := strconv.ParseInt(c.Params["chat_id"], 10, 64)
	return id
}

// Int is a numeric parameter, 0 if it is missing.
func (c Call) Int(name string) int {
	n, _ := strconv.Atoi(c.Params[name])
	return n
}

// Calls returns the calls of some methods, or all, in order of arrival.
func (s *Server) Calls(methods ...string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for _, c := range s.calls {
		if len(methods) == 0 || contains(methods, c.Method) {
			out = append(out, c)
		}
	}
	return out
}

// Forget drops what was recorded and every message, for tests that run long.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
	for _, c := range s.chats {
		c.messages = map[int]*Message{}
	}
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// reply is an answer before it is written.
type reply struct {
	status int
	result any
	desc   string
	params map[string]any
	raw    string // written as it is, with no JSON around it
}

func ok(result any) reply { return reply{status: http.StatusOK, result: result} }

func refuse(status int, format string, args ...any) reply {
	names := map[int]string{400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 429: "Too Many Requests", 502: "Bad Gateway"}
	desc := names[status]
	if format != "" {
		desc += ": " + fmt.Sprintf(format, args...)
	}
	return reply{status: status, desc: desc}
}

func flood(after int) reply {
	r := refuse(429, "retry after %d", after)
	r.params = map[string]any{"retry_after": after}
	return r
}

func (r reply) write(w http.ResponseWriter) {
	if r.raw != "" {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(r.status)
		_, _ = w.Write([]byte(r.raw))
		return
	}
	body := map[string]any{"ok": r.status == http.StatusOK}
	if r.status == http.StatusOK {
		body["result"] = r.result
	} else {
		body["error_code"], body["description"] = r.status, r.desc
		if r.params != nil {
			body["parameters"] = r.params
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone, which is its affair
}

// Skew sets the server's clock ahead of the real one, or back: it tells in answers and dates of messages.
func (s *Server) Skew(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = d
}

// ServeHTTP answers /bot<token>/<method> and /file/bot<token>/<path>.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	w.Header().Set("Date", time.Now().Add(s.skew).UTC().Format(http.TimeFormat))
	s.mu.Unlock()
	if path, ok := strings.CutPrefix(r.URL.Path, "/file/bot"); ok {
		s.serveFile(w, r, path)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/bot")
	token, method, found := strings.Cut(rest, "/")
	if !ok || !found {
		refuse(404, "").write(w)
		return
	}
	if token != Token {
		refuse(401, "").write(w)
		return
	}
	call, err := parseCall(r, method)
	if err != nil {
		refuse(400, "%v", err).write(w)
		return
	}
	s.answer(w, r, call)
}

// answer makes a call, with the fault that is due for it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, call Call) {
	fault := s.faultFor(call)
	if fault != nil && !fault.before(r.Context(), w) {
		s.record(call, reply{status: fault.Status, desc: fault.Kind.String()})
		return
	}
	var rep reply
	if fault != nil && fault.Kind == Refuse {
		rep = fault.reply()
	} else {
		rep = s.perform(r.Context(), call)
	}
	if fault != nil && fault.Kind == CutAfter {
		s.record(call, reply{desc: fault.Kind.String()})
		cut(w)
		return
	}
	s.record(call, rep)
	if fault != nil && fault.Kind == SlowAfter {
		sleep(r.Context(), fault.Delay)
	}
	rep.write(w)
}

func (s *Server) record(call Call, r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call.Status, call.Error = r.status, ""
	if r.status != http.StatusOK {
		call.Error = r.desc
	}
	s.calls = append(s.calls, call)
}

// perform makes a call. Names of methods are not case sensitive.
func (s *Server) perform(ctx context.Context, c Call) reply {
	if strings.EqualFold(c.Method, "getUpdates") {
		return s.getUpdates(ctx, c)
	}
	methods := map[string]func(Call) reply{
		"getme": s.getMe, "deletewebhook": s.deleteWebhook, "setwebhook": s.setWebhook, "getwebhookinfo": s.getWebhookInfo,
		"sendmessage": s.sendMessage, "editmessagetext": s.editMessageText, "editmessagereplymarkup": s.editMarkup,
		"deletemessage": s.deleteMessage, "sendchataction": s.sendChatAction, "answercallbackquery": s.answerCallbackQuery,
		"setmycommands": s.setMyCommands, "getmycommands": s.getMyCommands, "getfile": s.getFile,
		"senddocument": s.sendFile("document"), "sendphoto": s.sendFile("photo"), "sendvoice": s.sendFile("voice"),
		"sendaudio": s.sendFile("audio"), "sendvideo": s.sendFile("video"), "sendanimation": s.sendFile("animation"),
	}
	do, known := methods[strings.ToLower(c.Method)]
	if !known {
		return refuse(404, "method not found")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return do(c)
}

func (s *Server) getMe(Call) reply {
	return ok(map[string]any{
		"id": BotID, "is_bot": true, "first_name": "Hermes", "username": BotName,
		"can_join_groups": true, "can_read_all_group_messages": false, "supports_inline_queries": false,
	})
}

func (s *Server) setWebhook(c Call) reply {
	s.webhook = c.Params["url"]
	return ok(true)
}

func (s *Server) deleteWebhook(c Call) reply {
	s.webhook = ""
	if c.Params["drop_pending_updates"] == "true" {
		s.updates = nil
	}
	return ok(true)
}

func (s *Server) getWebhookInfo(Call) reply {
	return ok(map[string]any{"url": s.webhook, "has_custom_certificate": false, "pending_update_count": len(s.updates)})
}

func (s *Server) setMyCommands(c Call) reply {
	var list []struct{ Command, Description string }
	if err := json.Unmarshal([]byte(c.Params["commands"]), &list); err != nil {
		return refuse(400, "can't parse commands: %v", err)
	}
	if len(list) > 100 {
		return refuse(400, "BOT_COMMANDS_TOO_MUCH")
	}
	for _, b := range list {
		if !validCommand(b.Command) {
			return refuse(400, "BOT_COMMAND_INVALID")
		}
		if n := units(b.Description); n < 1 || n > 256 {
			return refuse(400, "BOT_COMMAND_DESCRIPTION_INVALID")
		}
	}
	s.commands = json.RawMessage(c.Params["commands"])
	return ok(true)
}

func validCommand(s string) bool {
	if len(s) < 1 || len(s) > 32 {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func (s *Server) getMyCommands(Call) reply {
	if s.commands == nil {
		return ok([]any{})
	}
	return ok(s.commands)
}

// Commands returns what setMyCommands stored, as JSON.
func (s *Server) Commands() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.commands)
}

// SetWebhook sets a webhook, as another program of the bot's owner may have done.
func (s *Server) SetWebhook(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.webhook = url
}
