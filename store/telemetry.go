package store

import (
	"context"
	"encoding/json"
)

// Telemetry is supervisor.db: the journal. Nothing in it is needed to answer a message, so the file may be deleted at any
// time and a commit need not reach the disk at once.
type Telemetry struct{ *database }

// OpenTelemetry opens or creates supervisor.db.
func OpenTelemetry(ctx context.Context, path string, o Options) (*Telemetry, error) {
	d, err := open(ctx, path, kind{migrations: "telemetry", sync: "NORMAL"}, o)
	if err != nil {
		return nil, err
	}
	return &Telemetry{d}, nil
}

// Append adds an entry to the journal.
func (t *Telemetry) Append(ctx context.Context, e Event) (int64, error) {
	if e.Time.IsZero() {
		e.Time = t.now()
	}
	var fields any
	if len(e.Fields) > 0 {
		b, err := json.Marshal(e.Fields)
		if err != nil {
			return 0, err
		}
		fields = string(b)
	}
	return write(ctx, t.database, func(x *tx) (int64, error) {
		return x.insert("INSERT INTO events(time, kind, worker, pid, turn_id, message, fields) VALUES(?, ?, ?, ?, ?, ?, ?)",
			seconds(e.Time), e.Kind, e.Worker, e.PID, e.TurnID, valid(e.Message), fields)
	})
}

func scanEvent(row scanner) (e Event, err error) {
	var at *float64
	var fields *string
	err = row.Scan(&e.ID, &at, &e.Kind, &e.Worker, &e.PID, &e.TurnID, &e.Message, &fields)
	e.Time = instant(at)
	if err == nil && fields != nil {
		err = json.Unmarshal([]byte(*fields), &e.Fields)
	}
	return e, err
}

// Events returns the newest entries that f selects, oldest first.
func (t *Telemetry) Events(ctx context.Context, f EventFilter) ([]Event, error) {
	since := 0.0
	if !f.Since.IsZero() {
		since = float64(f.Since.UnixMicro()) / 1e6
	}
	return read(ctx, t.database, func(x *tx) ([]Event, error) {
		return all(x, scanEvent, `SELECT * FROM (SELECT id, time, kind, worker, pid, turn_id, message, fields FROM events
			WHERE id > ? AND time >= ? AND (?3 = '' OR worker = ?3) ORDER BY id DESC LIMIT ?4) ORDER BY id`,
			f.AfterID, since, f.Worker, orDefault(f.Limit))
	})
}
