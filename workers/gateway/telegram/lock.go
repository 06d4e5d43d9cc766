package telegram

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// lockPatience is how long the lock is waited for: a predecessor that is being stopped needs a moment to go.
const lockPatience = 3 * time.Second

// A tokenLock makes this process the only one of this user on this machine that polls with a token. The kernel takes the lock
// away when the process ends, however it ends. The file and its record are those of Hermes Agent, which has no
// kernel lock: there the record counts, as long as its process lives.
type tokenLock struct {
	file *os.File
}

// lockRecord is what the file holds.
type lockRecord struct {
	PID       int            `json:"pid"`
	Kind      string         `json:"kind"`
	Argv      []string       `json:"argv"`
	StartTime int64          `json:"start_time"` // field 22 of /proc/PID/stat, which tells a PID from its next owner
	Scope     string         `json:"scope"`
	Identity  string         `json:"identity_hash"`
	Metadata  map[string]any `json:"metadata"`
	UpdatedAt string         `json:"updated_at"`
}

const lockScope = "telegram-bot-token"

// lockToken takes the lock, or says who has it.
func lockToken(ctx context.Context, dir, token, home string) (*tokenLock, error) {
	sum := sha256.Sum256([]byte(token))
	identity := hex.EncodeToString(sum[:])[:16]
	name := lockScope + "-" + identity + ".lock"
	path, err := lockPath(dir, name)
	if err != nil {
		return nil, fmt.Errorf("lock of the bot token: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	readOnly := gateway.TakesNoWrites(err)
	if readOnly { // the lock needs no write, only what it says for people
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock of the bot token: %w", err)
	}
	l := &tokenLock{file: f}
	if err := l.take(ctx); err != nil {
		_ = f.Close()
		return nil, err
	}
	if readOnly {
		return l, nil
	}
	if err := l.write(identity, home); err != nil && !gateway.TakesNoWrites(err) {
		l.release()
		return nil, fmt.Errorf("lock of the bot token: write %s: %w", path, err)
	}
	return l, nil
}

// lockPath makes the folder of the locks. Every home of a user must find the same one, and a worker's environment
// is nearly empty, so the password file says where the user is at home.
func lockPath(dir, name string) (string, error) {
	if dir == "" {
		dir = os.Getenv("HERMES_GATEWAY_LOCK_DIR")
	}
	if dir != "" {
		return filepath.Join(dir, name), os.MkdirAll(dir, 0o700)
	}
	state := os.Getenv("XDG_STATE_HOME")
	if u, err := user.Current(); state == "" && err == nil && u.HomeDir != "" {
		state = filepath.Join(u.HomeDir, ".local", "state")
	}
	dir = filepath.Join(state, "hermes", "gateway-locks")
	if state != "" && os.MkdirAll(dir, 0o700) == nil && unix.Access(dir, unix.W_OK) == nil {
		return filepath.Join(dir, name), nil
	}
	dir = filepath.Join(os.TempDir(), fmt.Sprintf("hermes-gateway-locks-%d", os.Getuid()))
	return filepath.Join(dir, name), os.MkdirAll(dir, 0o700)
}

// take waits a little for the kernel's lock and for the record's process to go.
func (l *tokenLock) take(ctx context.Context) error {
	deadline := time.Now().Add(lockPatience)
	for {
		err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		holder := l.read()
		if err == nil && !holder.alive() {
			return nil
		}
		if err == nil {
			_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
		} else if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock of the bot token: flock %s: %w", l.file.Name(), err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the bot token is in use by process %d%s: one bot can be polled by one process only; stop it or use another bot (lock: %s)",
				holder.PID, holder.where(), l.file.Name())
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("lock of the bot token, held by process %d: %w", holder.PID, err)
		}
	}
}

// read returns the record, empty if there is none.
func (l *tokenLock) read() lockRecord {
	var r lockRecord
	raw, err := os.ReadFile(l.file.Name())
	if err != nil || json.Unmarshal(raw, &r) != nil {
		return lockRecord{}
	}
	return r
}

func (r lockRecord) where() string {
	if home, ok := r.Metadata["home"].(string); ok && home != "" {
		return " (" + home + ")"
	}
	return ""
}

// alive reports whether the record's process, and not another one with its number, runs.
func (r lockRecord) alive() bool {
	if r.PID <= 0 || r.PID == os.Getpid() {
		return false
	}
	start, state, err := processStart(r.PID)
	return err == nil && state != "Z" && state != "X" && (r.StartTime == 0 || start == r.StartTime)
}

// processStart reads when a process began, in ticks since boot, and its state.
func processStart(pid int) (start int64, state string, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// The name in brackets may hold spaces and brackets itself.
	_, rest, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return 0, "", fmt.Errorf("stat of process %d is too short", pid)
	}
	start, err = strconv.ParseInt(fields[19], 10, 64)
	return start, fields[0], err
}

func (l *tokenLock) write(identity, home string) error {
	start, _, err := processStart(os.Getpid())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(lockRecord{
		PID: os.Getpid(), Kind: "hermes-gateway", Argv: os.Args[:1], StartTime: start, Scope: lockScope, Identity: identity,
		Metadata: map[string]any{"home": home}, UpdatedAt: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(raw, 0)
	return err
}

// release gives the lock back. The file stays: removing it would let two processes lock two files of one name.
func (l *tokenLock) release() {
	if l == nil {
		return
	}
	_ = l.file.Truncate(0)
	_ = l.file.Close()
}
