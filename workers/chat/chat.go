// Package chat is what the ways of chatting have in common: how a conversation is called and found, and what a person is
// told of an error. It knows no markup.
package chat

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

const (
	// ListedSessions are shown by /sessions; SearchedSessions are looked through for a name.
	ListedSessions   = 10
	SearchedSessions = 100
	// MaxUndo bounds what one /undo takes back, so that a slip of the finger does not empty a conversation.
	MaxUndo = 20
	// maxTold is how much of a message is repeated to say which one is meant, in runes.
	maxTold = 80
	// How the store calls two of its errors; their texts cross the wire as they are.
	storeInvalid  = "invalid"
	storeTurnOpen = "a turn is open"
)

// Name is what a person calls a session.
func Name(s *hostv1.SessionInfo) string {
	if s.GetTitle() != "" {
		return "“" + s.Title + "”"
	}
	if s.GetPreview() != "" {
		return Quote(s.Preview)
	}
	return s.GetId()
}

// Model is the model of a session in words.
func Model(s *hostv1.SessionInfo) string { return cmp.Or(s.GetModel(), "as configured") }

// Quote is the beginning of a text on one line, in quotes.
func Quote(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > maxTold {
		s = string(runes[:maxTold]) + "…"
	}
	return "“" + s + "”"
}

// Find looks for a session by its number in the list, its title, its id or the beginning of that. It returns nil if there is
// none, or more than one: to go on in the wrong conversation is worse than to be asked again.
func Find(list []*hostv1.SessionInfo, name string) *hostv1.SessionInfo {
	n, err := strconv.Atoi(name)
	numbered := err == nil && n >= 1 && n <= ListedSessions
	if numbered && n <= len(list) {
		return list[n-1]
	}
	for _, s := range list {
		if s.Id == name || strings.EqualFold(s.Title, name) {
			return s
		}
	}
	if numbered {
		return nil
	}
	var found *hostv1.SessionInfo
	for _, s := range list {
		if strings.HasPrefix(s.Id, name) {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

// Messages says how many messages a session has.
func Messages(s *hostv1.SessionInfo) string {
	if s.Messages == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", s.Messages)
}

// Count reads how many exchanges are to be taken back: one where nothing is said. ok is false if it is no number from 1 to
// MaxUndo.
func Count(args string) (n int, ok bool) {
	if args == "" {
		return 1, true
	}
	n, err := strconv.Atoi(args)
	return n, err == nil && n >= 1 && n <= MaxUndo
}

// Words is what an error of the supervisor says to a person: what follows its kind, if anything does.
func Words(err error) string {
	said := err.Error()
	var r *ipc.RemoteError
	if errors.As(err, &r) {
		said = r.Error()
	}
	for _, kind := range []string{
		ipc.ErrRefused.Error(), ipc.ErrNotFound.Error(), ipc.ErrInvalid.Error(), ipc.ErrExists.Error(), ipc.ErrDenied.Error(), storeInvalid,
	} {
		if _, reason, ok := strings.Cut(said, kind+": "); ok {
			return reason
		}
	}
	return said
}

// StillRunning says that something was refused because a turn runs or waits in the conversation. A store that takes no writes
// refuses too.
func StillRunning(err error) bool {
	return errors.Is(err, ipc.ErrRefused) && strings.Contains(err.Error(), storeTurnOpen)
}
