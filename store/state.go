package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"math"
	"time"
)

// State is state.db: the conversations in Hermes' tables, and what makes turns durable in tables with the prefix hs_.
// What must hold together is one transaction of this file.
type State struct{ *database }

// OpenState opens or creates state.db. A file of Hermes gets what it lacks and keeps what it has.
func OpenState(ctx context.Context, path string, o Options) (*State, error) {
	d, err := open(ctx, path, kind{migrations: "state", sync: "FULL", foreign: true, indexed: true}, o)
	if err != nil {
		return nil, err
	}
	return &State{d}, nil
}

// Counts counts turns and outbox rows by state.
func (s *State) Counts(ctx context.Context) (Counts, error) {
	return read(ctx, s.database, func(t *tx) (c Counts, err error) {
		err = t.get(`SELECT
			(SELECT count(*) FROM hs_turns WHERE state <> 'done' AND state = 'queued'),
			(SELECT count(*) FROM hs_turns WHERE state <> 'done' AND state = 'leased'),
			(SELECT count(*) FROM hs_turns WHERE outcome = 'parked'),
			(SELECT count(*) FROM hs_outbox WHERE state IN ('pending', 'sending', 'unknown') AND state <> 'unknown'),
			(SELECT count(*) FROM hs_outbox WHERE state IN ('pending', 'sending', 'unknown') AND state = 'unknown')`,
			nil, &c.Queued, &c.Running, &c.Parked, &c.OutboxPending, &c.OutboxUnknown)
		return c, err
	})
}

// seconds is a time as the REAL columns hold it, NULL for the zero time.
func seconds(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return float64(t.UnixMicro()) / 1e6
}

// instant is the reverse of seconds.
func instant(s *float64) time.Time {
	if s == nil {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(*s * 1e6)))
}

// newID returns a name that no other has: prefix and 16 random hex digits.
func newID(prefix string) string { return prefix + randomHex(8) }

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
