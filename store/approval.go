package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const approvalColumns = `SELECT id, turn_id, call_id, tool, summary, reason, deadline, decided, approved, decided_by, decided_at FROM hs_approvals`

func scanApproval(row scanner) (a Approval, err error) {
	var deadline, decided *float64
	err = row.Scan(&a.ID, &a.TurnID, &a.CallID, &a.Tool, &a.Summary, &a.Reason, &deadline, &a.Decided, &a.Approved, &a.By, &decided)
	a.Deadline, a.DecidedAt = instant(deadline), instant(decided)
	return a, err
}

// RequestApproval stores a question to a person, one for each tool call. One that waits already gets the new deadline,
// one that is decided is returned with its decision.
func (s *State) RequestApproval(ctx context.Context, a Approval) (Approval, error) {
	if a.TurnID == "" || a.CallID == "" {
		return a, fmt.Errorf("%w: an approval needs a turn and a call", ErrInvalid)
	}
	if a.ID == "" {
		a.ID = newID("approval_")
	}
	return write(ctx, s.database, func(t *tx) (Approval, error) {
		if _, err := t.run(`INSERT INTO hs_approvals(id, turn_id, call_id, tool, summary, reason, deadline, created_at)
			VALUES(?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT(turn_id, call_id) DO UPDATE SET deadline = excluded.deadline WHERE decided = 0`,
			a.ID, a.TurnID, a.CallID, a.Tool, valid(a.Summary), valid(a.Reason), seconds(a.Deadline), seconds(s.now())); err != nil {
			return a, err
		}
		return one(t, scanApproval, approvalColumns+" WHERE turn_id = ? AND call_id = ?", a.TurnID, a.CallID)
	})
}

// DecideApproval answers a question. The first answer holds; before says that there was one.
func (s *State) DecideApproval(ctx context.Context, id string, approve bool, by string) (a Approval, before bool, err error) {
	type decision struct {
		approval Approval
		before   bool
	}
	d, err := write(ctx, s.database, func(t *tx) (decision, error) {
		n, err := t.run("UPDATE hs_approvals SET decided = 1, approved = ?, decided_by = ?, decided_at = ? WHERE id = ? AND decided = 0",
			approve, by, seconds(s.now()), id)
		if err != nil {
			return decision{}, err
		}
		a, err := one(t, scanApproval, approvalColumns+" WHERE id = ?", id)
		if errors.Is(err, ErrNotFound) {
			err = fmt.Errorf("approval %q: %w", id, err)
		}
		return decision{a, n == 0}, err
	})
	return d.approval, d.before, err
}

// Approvals returns the questions of a turn that wait for an answer, those of all turns if it is empty.
func (s *State) Approvals(ctx context.Context, turnID string) ([]Approval, error) {
	return read(ctx, s.database, func(t *tx) ([]Approval, error) {
		return all(t, scanApproval, approvalColumns+" WHERE decided = 0 AND (?1 = '' OR turn_id = ?1) ORDER BY created_at, rowid", turnID)
	})
}

// closeApprovals answers what still waits when its turn ends: nobody listens any more.
func closeApprovals(t *tx, turnID string, now time.Time) error {
	_, err := t.run("UPDATE hs_approvals SET decided = 1, approved = 0, decided_by = 'turn', decided_at = ? WHERE turn_id = ? AND decided = 0",
		seconds(now), turnID)
	return err
}
