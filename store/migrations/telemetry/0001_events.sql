-- The supervisor's journal. The file may be deleted at any time: nothing here is needed to answer a message.
CREATE TABLE IF NOT EXISTS events (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    time    REAL NOT NULL,
    kind    TEXT NOT NULL,
    worker  TEXT NOT NULL DEFAULT '',
    pid     INTEGER NOT NULL DEFAULT 0,
    turn_id TEXT NOT NULL DEFAULT '',
    message TEXT NOT NULL DEFAULT '',
    fields  TEXT);
CREATE INDEX IF NOT EXISTS events_worker ON events(worker, id);
CREATE INDEX IF NOT EXISTS events_time ON events(time);
