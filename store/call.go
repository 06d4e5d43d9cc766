package store

import (
	"context"
	"errors"
	"fmt"
)

const callColumns = `SELECT turn_id, call_id, seq, tool, arguments, state, attempt, read_only, result, error_kind, error, spill_path,
	started_at, ended_at FROM hs_tool_calls`

func scanCall(row scanner) (c Call, err error) {
	var started, ended *float64
	err = row.Scan(&c.TurnID, &c.CallID, &c.Seq, &c.Tool, &c.Arguments, &c.State, &c.Attempt, &c.ReadOnly, &c.Result,
		&c.ErrorKind, &c.Error, &c.SpillPath, &started, &ended)
	c.StartedAt, c.EndedAt = instant(started), instant(ended)
	return c, err
}

func call(t *tx, turnID, callID string) (Call, error) {
	return one(t, scanCall, callColumns+" WHERE turn_id = ? AND call_id = ?", turnID, callID)
}

// BeginCall stores the intent to make a tool call, before it is made. The second value says that it is new; a call that
// is known is returned as it stands.
func (s *State) BeginCall(ctx context.Context, fence uint64, c Call) (Call, bool, error) {
	if c.CallID == "" || c.Tool == "" {
		return Call{}, false, fmt.Errorf("%w: a tool call needs an id and a tool", ErrInvalid)
	}
	if c.State == "" {
		c.State = CallIntent
	}
	type begun struct {
		call    Call
		created bool
	}
	b, err := write(ctx, s.database, func(t *tx) (begun, error) {
		u, err := turn(t, c.TurnID)
		if err != nil {
			return begun{}, err
		}
		if u.Fence != fence || u.State != TurnLeased {
			return begun{}, lost(u, fence)
		}
		known, err := call(t, c.TurnID, c.CallID)
		if !errors.Is(err, ErrNotFound) {
			return begun{call: known}, err
		}
		now := seconds(s.now())
		if _, err := t.run(`INSERT INTO hs_tool_calls(turn_id, call_id, seq, tool, arguments, state, attempt, read_only, created_at)
			VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			c.TurnID, c.CallID, c.Seq, c.Tool, valid(c.Arguments), c.State, c.Attempt, c.ReadOnly, now); err != nil {
			return begun{}, err
		}
		known, err = call(t, c.TurnID, c.CallID)
		return begun{known, true}, err
	})
	return b.call, b.created, err
}

// SetCall changes state, attempt, result and error of a call. A call that is done stays as it is: its result may have
// been read.
func (s *State) SetCall(ctx context.Context, c Call) error {
	_, err := write(ctx, s.database, func(t *tx) (any, error) {
		known, err := call(t, c.TurnID, c.CallID)
		if err != nil {
			return nil, fmt.Errorf("call %q of turn %q: %w", c.CallID, c.TurnID, err)
		}
		if known.State == CallDone {
			return nil, nil
		}
		started, ended, now := known.StartedAt, known.EndedAt, s.now()
		if c.State == CallRunning && started.IsZero() {
			started = now
		}
		if c.State == CallDone || c.State == CallUnknown {
			ended = now
		}
		_, err = t.run(`UPDATE hs_tool_calls SET state = ?, attempt = ?, result = ?, error_kind = ?, error = ?, spill_path = ?,
			started_at = ?, ended_at = ? WHERE turn_id = ? AND call_id = ?`,
			c.State, c.Attempt, valid(c.Result), c.ErrorKind, valid(c.Error), c.SpillPath, seconds(started), seconds(ended), c.TurnID, c.CallID)
		return nil, err
	})
	return err
}

// Calls returns the tool calls of a turn in the order in which they were begun.
func (s *State) Calls(ctx context.Context, turnID string) ([]Call, error) {
	return read(ctx, s.database, func(t *tx) ([]Call, error) {
		return all(t, scanCall, callColumns+" WHERE turn_id = ? ORDER BY id", turnID)
	})
}
