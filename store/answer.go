package store

import (
	"encoding/json"
	"errors"
	"fmt"
)

// once does what a message of a chat asks for, the first time that it is handed over; later it returns what was answered
// then. A message that asks for something else under the same id is ErrExists. Without an id nothing is remembered.
func once[T any](t *tx, s *State, of Place, messageID, kind string, do func() (T, error)) (answer T, duplicate bool, err error) {
	if messageID == "" {
		answer, err = do()
		return answer, false, err
	}
	known, text, err := answered(t, of, messageID)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return answer, false, err
	case known != kind:
		return answer, false, fmt.Errorf("message %s of %s chat %s: %w as %s, not %s", messageID, of.Platform, of.ChatID, ErrExists, known, kind)
	default:
		err = json.Unmarshal([]byte(text), &answer)
		return answer, true, err
	}
	if answer, err = do(); err != nil {
		return answer, false, err
	}
	return answer, false, remember(t, s, of, messageID, kind, answer)
}

func answered(t *tx, of Place, messageID string) (kind, text string, err error) {
	err = t.get("SELECT kind, answer FROM hs_answers WHERE platform = ? AND chat_id = ? AND message_id = ?",
		[]any{of.Platform, of.ChatID, messageID}, &kind, &text)
	return kind, text, err
}

func remember(t *tx, s *State, of Place, messageID, kind string, answer any) error {
	b, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	_, err = t.run("INSERT INTO hs_answers(platform, chat_id, message_id, kind, answer, at) VALUES(?, ?, ?, ?, ?, ?)",
		of.Platform, of.ChatID, messageID, kind, string(b), seconds(s.now()))
	return err
}
