package turn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// What is taken from outside is bounded, so that one caller cannot fill the store or a message.
const (
	maxID     = 512       // ids, names and keys; the longest that a platform is known to have is under 200
	maxText   = 256 << 10 // of a person: about 60,000 words
	maxStep   = 1 << 20   // of a model: its longest replies are under 512 KiB
	maxSteps  = 64        // in one Append
	maxRows   = 4096      // of a history that comes with a message
	maxNotice = 4 << 10
	maxPath   = 4 << 10
	maxTitle  = 1 << 10 // of a task
	maxList   = 1000
)

var chatTypes = []string{"", "dm", "group", "channel", "thread"}

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", field, ipc.ErrInvalid, fmt.Sprintf(format, args...))
}

// checkID refuses a name that is missing, too long or not printable.
func checkID(field, id string) error {
	if id == "" {
		return invalid(field, "it is empty")
	}
	return checkName(field, id)
}

// checkName is checkID for a name that may be missing.
func checkName(field, name string) error {
	switch {
	case len(name) > maxID:
		return invalid(field, "%d bytes, at most %d are taken", len(name), maxID)
	case !utf8.ValidString(name):
		return invalid(field, "not UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return invalid(field, "control characters in %q", name)
	}
	return nil
}

func checkText(field, text string, limit int) error {
	switch {
	case len(text) > limit:
		return invalid(field, "%d bytes, at most %d are taken", len(text), limit)
	case !utf8.ValidString(text):
		return invalid(field, "not UTF-8")
	}
	return nil
}

func checkInbound(in store.Inbound) error {
	err := errors.Join(
		checkID("platform", in.Platform), checkID("chat_id", in.ChatID), checkID("message_id", in.MessageID),
		checkName("thread_id", in.ThreadID), checkName("session_key", in.SessionKey), checkName("session_id", in.SessionID),
		checkName("user_id", in.UserID), checkName("model", in.Model),
		checkName("fingerprint", in.Fingerprint), checkText("text", in.Text, maxText), checkText("system_prompt", in.System, maxText),
	)
	if err != nil {
		return err
	}
	if in.Text == "" {
		return invalid("text", "it is empty")
	}
	if err := checkChatType(in.ChatType); err != nil {
		return err
	}
	if len(in.History) > maxRows {
		return invalid("history", "%d messages, at most %d are taken", len(in.History), maxRows)
	}
	for i, m := range in.History {
		if err := checkMessage(m); err != nil {
			return fmt.Errorf("history, message %d: %w", i+1, err)
		}
	}
	return nil
}

func checkChatType(kind string) error {
	if !slices.Contains(chatTypes, kind) {
		return invalid("chat_type", "%q is not dm, group, channel or thread", kind)
	}
	return nil
}

func checkMessage(m store.Message) error {
	switch m.Role {
	case "system", "user", "assistant", "tool":
	default:
		return invalid("role", "%q is not system, user, assistant or tool", cut(m.Role, 80))
	}
	err := errors.Join(
		checkText("content", m.Content, maxStep), checkText("reasoning", m.Reasoning, maxStep), checkName("tool_call_id", m.ToolCallID),
		checkName("tool_name", m.ToolName), checkName("finish_reason", m.FinishReason),
	)
	for _, c := range m.ToolCalls {
		err = errors.Join(err, checkID("tool call id", c.ID), checkName("tool call name", c.Name), checkText("tool call arguments", c.Arguments, maxStep))
	}
	return err
}

// checkSteps checks what an agent appends. Step 0 is the person's message and is stored by the lease.
func checkSteps(steps []store.Message) error {
	if len(steps) == 0 || len(steps) > maxSteps {
		return invalid("steps", "%d of them, 1 to %d are taken", len(steps), maxSteps)
	}
	for _, m := range steps {
		if m.Seq == 0 {
			return invalid("steps", "seq 0 is the person's message")
		}
		if err := checkMessage(m); err != nil {
			return fmt.Errorf("step %d: %w", m.Seq, err)
		}
	}
	return nil
}

// cleanName makes a display name fit. People put anything into theirs, and no message is refused for that.
func cleanName(name string) string {
	name = strings.ToValidUTF8(name, "")
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, name)
	return oneLine(name, maxID)
}

// cut returns the beginning of s, at most limit bytes and no half character.
func cut(s string, limit int) string {
	if limit <= 0 {
		return ""
	}
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// oneLine returns s as one line of at most limit bytes, with a mark where it was cut.
func oneLine(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= limit {
		return s
	}
	return cut(s, limit-len("…")) + "…"
}
