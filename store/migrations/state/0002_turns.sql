-- What this system adds to Hermes' file: the prefix hs_ keeps it apart. No foreign key points at Hermes' tables, so that
-- Hermes can go on deleting sessions and messages.

-- Messages as a platform handed them over. The unique key makes a repeated delivery a duplicate.
CREATE TABLE IF NOT EXISTS hs_inbox (
    id          INTEGER PRIMARY KEY,
    platform    TEXT NOT NULL,
    chat_id     TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    text        TEXT NOT NULL,
    fingerprint TEXT NOT NULL DEFAULT '', -- of the message as it came, to tell a repeat from a mistake
    session_id  TEXT NOT NULL,
    turn_id     TEXT NOT NULL UNIQUE,
    received_at REAL NOT NULL,
    UNIQUE (platform, chat_id, message_id));

-- Turns in order of acceptance.
CREATE TABLE IF NOT EXISTS hs_turns (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    session_id  TEXT NOT NULL,
    platform    TEXT NOT NULL,
    chat_id     TEXT NOT NULL,
    thread_id   TEXT NOT NULL DEFAULT '',
    message_id  TEXT NOT NULL,
    user_id     TEXT NOT NULL DEFAULT '',
    user_name   TEXT NOT NULL DEFAULT '',
    state       TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'leased', 'done')),
    fence       INTEGER NOT NULL DEFAULT 0,
    worker      TEXT NOT NULL DEFAULT '',
    attempt     INTEGER NOT NULL DEFAULT 0,
    interrupted INTEGER NOT NULL DEFAULT 0,
    next_seq    INTEGER NOT NULL DEFAULT 0,
    outcome     TEXT NOT NULL DEFAULT '',
    final       TEXT NOT NULL DEFAULT '',
    error       TEXT NOT NULL DEFAULT '',
    accepted_at REAL NOT NULL,
    leased_at   REAL,
    ended_at    REAL);
CREATE INDEX IF NOT EXISTS hs_turns_open ON hs_turns(seq) WHERE state <> 'done';
CREATE INDEX IF NOT EXISTS hs_turns_parked ON hs_turns(seq) WHERE outcome = 'parked';
CREATE INDEX IF NOT EXISTS hs_turns_session ON hs_turns(session_id, seq);

-- Which message row is which step of which turn: the key under which a repeated write is known.
CREATE TABLE IF NOT EXISTS hs_steps (
    turn_id    TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    message_id INTEGER NOT NULL,
    PRIMARY KEY (turn_id, seq)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS hs_steps_message ON hs_steps(message_id);

CREATE TABLE IF NOT EXISTS hs_tool_calls (
    id         INTEGER PRIMARY KEY,
    turn_id    TEXT NOT NULL,
    call_id    TEXT NOT NULL,
    seq        INTEGER NOT NULL DEFAULT 0,
    tool       TEXT NOT NULL,
    arguments  TEXT NOT NULL DEFAULT '',
    state      TEXT NOT NULL CHECK (state IN ('intent', 'approval', 'running', 'done', 'unknown')),
    attempt    INTEGER NOT NULL DEFAULT 0,
    read_only  INTEGER NOT NULL DEFAULT 0,
    result     TEXT NOT NULL DEFAULT '',
    error_kind TEXT NOT NULL DEFAULT '',
    error      TEXT NOT NULL DEFAULT '',
    spill_path TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at   REAL,
    UNIQUE (turn_id, call_id));

CREATE TABLE IF NOT EXISTS hs_approvals (
    id         TEXT PRIMARY KEY,
    turn_id    TEXT NOT NULL,
    call_id    TEXT NOT NULL,
    tool       TEXT NOT NULL DEFAULT '',
    summary    TEXT NOT NULL DEFAULT '',
    reason     TEXT NOT NULL DEFAULT '',
    deadline   REAL,
    decided    INTEGER NOT NULL DEFAULT 0,
    approved   INTEGER NOT NULL DEFAULT 0,
    decided_by TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    decided_at REAL,
    UNIQUE (turn_id, call_id));
CREATE INDEX IF NOT EXISTS hs_approvals_open ON hs_approvals(created_at) WHERE decided = 0;

CREATE TABLE IF NOT EXISTS hs_outbox (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    key          TEXT NOT NULL UNIQUE,
    platform     TEXT NOT NULL,
    chat_id      TEXT NOT NULL,
    thread_id    TEXT NOT NULL DEFAULT '',
    reply_to     TEXT NOT NULL DEFAULT '',
    turn_id      TEXT NOT NULL DEFAULT '',
    text         TEXT NOT NULL,
    state        TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sending', 'sent', 'unknown', 'rejected')),
    attempt      INTEGER NOT NULL DEFAULT 0,
    message_ids  TEXT NOT NULL DEFAULT '[]',
    next_attempt REAL,
    detail       TEXT NOT NULL DEFAULT '',
    created_at   REAL NOT NULL,
    sent_at      REAL,
    put_off_at   REAL); -- since when it waits for next_attempt, to tell a clock that was set back
CREATE INDEX IF NOT EXISTS hs_outbox_owed ON hs_outbox(platform, chat_id, id) WHERE state IN ('pending', 'sending', 'unknown');
