-- What chats ask for besides an answer. Everything that a message of a platform did is kept under that message, so that
-- it is done once however often it is handed over.

-- What a command or a message in a busy chat was answered.
CREATE TABLE IF NOT EXISTS hs_answers (
    platform   TEXT NOT NULL,
    chat_id    TEXT NOT NULL,
    message_id TEXT NOT NULL,
    kind       TEXT NOT NULL,
    answer     TEXT NOT NULL, -- JSON
    at         REAL NOT NULL,
    PRIMARY KEY (platform, chat_id, message_id)) WITHOUT ROWID;

-- Turns that a person wants to end. They may still be running.
CREATE TABLE IF NOT EXISTS hs_stops (
    turn_id TEXT PRIMARY KEY,
    reason  TEXT NOT NULL,
    at      REAL NOT NULL) WITHOUT ROWID;

-- Texts that people handed to a running turn.
CREATE TABLE IF NOT EXISTS hs_steers (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    platform   TEXT NOT NULL,
    chat_id    TEXT NOT NULL,
    thread_id  TEXT NOT NULL DEFAULT '',
    message_id TEXT NOT NULL,
    user_id    TEXT NOT NULL DEFAULT '',
    user_name  TEXT NOT NULL DEFAULT '',
    text       TEXT NOT NULL,
    session_id TEXT NOT NULL,
    turn_id    TEXT NOT NULL, -- that it was handed to
    next_turn  TEXT NOT NULL DEFAULT '', -- that it became, if that one ended before it took the text
    state      TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'taken', 'kept', 'queued')),
    at         REAL NOT NULL,
    UNIQUE (platform, chat_id, message_id));
CREATE INDEX IF NOT EXISTS hs_steers_turn ON hs_steers(turn_id, id);
CREATE INDEX IF NOT EXISTS hs_turns_session_open ON hs_turns(session_id, seq) WHERE state <> 'done';

-- Turns that ran when the supervisor ended. Twice within minutes means that the turn may be the cause.
CREATE TABLE IF NOT EXISTS hs_restarted (
    turn_id TEXT PRIMARY KEY,
    at      REAL NOT NULL,
    looped  INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;

-- Restarts that a chat asked for.
CREATE TABLE IF NOT EXISTS hs_restarts (
    platform   TEXT NOT NULL,
    chat_id    TEXT NOT NULL,
    message_id TEXT NOT NULL,
    thread_id  TEXT NOT NULL DEFAULT '',
    user_id    TEXT NOT NULL DEFAULT '',
    asked_at   REAL NOT NULL,
    told_at    REAL,
    PRIMARY KEY (platform, chat_id, message_id)) WITHOUT ROWID;

-- When a chat last got a notice of a kind.
CREATE TABLE IF NOT EXISTS hs_notices (
    platform TEXT NOT NULL,
    chat_id  TEXT NOT NULL,
    kind     TEXT NOT NULL,
    at       REAL NOT NULL,
    PRIMARY KEY (platform, chat_id, kind)) WITHOUT ROWID;

-- Questions whether a command may be done.
CREATE TABLE IF NOT EXISTS hs_confirmations (
    id         TEXT PRIMARY KEY,
    platform   TEXT NOT NULL,
    chat_id    TEXT NOT NULL,
    key        TEXT NOT NULL,
    thread_id  TEXT NOT NULL DEFAULT '',
    user_id    TEXT NOT NULL DEFAULT '',
    command    TEXT NOT NULL,
    question   TEXT NOT NULL DEFAULT '',
    payload    BLOB,
    state      TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'once', 'always', 'cancelled')),
    remembered INTEGER NOT NULL DEFAULT 0,
    done       INTEGER NOT NULL DEFAULT 0,
    deadline   REAL NOT NULL,
    asked_at   REAL NOT NULL,
    decided_at REAL,
    UNIQUE (platform, chat_id, key));
CREATE INDEX IF NOT EXISTS hs_confirmations_open ON hs_confirmations(platform, asked_at) WHERE state IN ('pending', 'once', 'always') AND done = 0;

-- Commands that a person allowed for always.
CREATE TABLE IF NOT EXISTS hs_allowances (
    platform TEXT NOT NULL,
    chat_id  TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    command  TEXT NOT NULL,
    at       REAL NOT NULL,
    PRIMARY KEY (platform, chat_id, user_id, command)) WITHOUT ROWID;
