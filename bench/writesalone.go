package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
)

const (
	// What the existing system stores of a message: its row, with the full-text indices by their triggers, and the
	// counters of its session.
	insertMessage = "INSERT INTO messages(session_id, role, content, timestamp) VALUES(?, 'assistant', ?, ?)"
	countMessage  = "UPDATE sessions SET message_count = message_count + 1, last_activity_at = ? WHERE id = ?"

	// Its way to the write lock.
	aloneTries    = 15
	aloneTimeout  = time.Second
	alonePauseMin = 20 * time.Millisecond
	alonePauseMax = 150 * time.Millisecond
	// aloneCheckpoint is after how many of its writes a process copies the WAL.
	aloneCheckpoint = 50
)

// writeAlone is one process of several that share a file without a supervisor. Its load comes as JSON on stdin once it
// has said that it is ready, what it reached goes to stdout.
func writeAlone(path, session string) error {
	db, err := openAlone(path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	fmt.Println("ready")
	var l load
	if err := json.NewDecoder(os.Stdin).Decode(&l); err != nil {
		return err
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	w := l.run(uint64(os.Getpid()), func(i int, text string) error {
		err := withRetries(func() error { return commitAlone(conn, session, text) })
		if i%aloneCheckpoint == aloneCheckpoint-1 {
			_, _ = conn.ExecContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)")
		}
		return err
	})
	return json.NewEncoder(os.Stdout).Encode(w)
}

func openAlone(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite3", fmt.Sprintf("file:%s?_busy_timeout=%d&_synchronous=FULL&_txlock=immediate&_foreign_keys=1&_stmt_cache_size=64",
		path, aloneTimeout.Milliseconds()))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, db.Ping()
}

// withRetries tries again what failed because another process held the lock.
func withRetries(write func() error) error {
	for range aloneTries {
		if err := write(); !isLocked(err) {
			return err
		}
		time.Sleep(alonePauseMin + rand.N(alonePauseMax-alonePauseMin))
	}
	return fmt.Errorf("database is locked after %d tries", aloneTries)
}

func isLocked(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrBusy || e.Code == sqlite3.ErrLocked)
}

func commitAlone(conn *sql.Conn, session, text string) error {
	ctx := context.Background()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	now := float64(time.Now().UnixMicro()) / 1e6
	if _, err := tx.ExecContext(ctx, insertMessage, session, text, now); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, countMessage, now, session); err != nil {
		return err
	}
	return tx.Commit()
}

// heldAfter is when the lock is taken: the writers have begun by then.
const heldAfter = startAfter + time.Second

// holdLock is a foreign process that holds the write lock, as a VACUUM or an optimize of the index does.
func holdLock(path, duration string) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	db, err := openAlone(path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	fmt.Println("ready")
	time.Sleep(heldAfter)
	tx, err := db.Begin() // with the lock, by _txlock
	for isLocked(err) {
		tx, err = db.Begin()
	}
	if err != nil {
		return err
	}
	time.Sleep(d)
	return tx.Commit()
}
