package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// RecoverOptions say what to recover and where to.
type RecoverOptions struct {
	Source       string // a database, or a preserved copy of one; never opened and never changed
	Output       string // a new file; ignored by an inspection
	WorkDir      string // for the copy of the source; empty: beside the output, or the folder for temporary files
	InspectOnly  bool
	AllowPartial bool // keep a result that misses rows
	Log          hclog.Logger
}

// A Recovery tells what was saved and what was lost.
type Recovery struct {
	Operation       string           `json:"operation"` // inspect | recover
	Source          string           `json:"source"`
	Output          string           `json:"output"`
	SourceBundle    []string         `json:"source_bundle"`
	SourceUnchanged bool             `json:"source_unchanged"`
	Tables          []RecoveredTable `json:"copy"`
	Placeholders    int              `json:"placeholder_sessions"` // made for messages whose session is lost
	Errors          []string         `json:"errors"`
	Complete        bool             `json:"complete"` // nothing was lost that can be known of
	Partial         bool             `json:"partial"`
	Verified        bool             `json:"verified"` // the new file passed all checks
	Installed       bool             `json:"installed"`
}

// A RecoveredTable is one table of a Recovery.
type RecoveredTable struct {
	Name   string `json:"table"`
	Status string `json:"status"` // complete | partial | failed
	Rows   int64  `json:"rows"`   // saved, or readable in an inspection
	Lost   int64  `json:"lost"`   // ids between saved rows at which the file could not be read, at most
	Error  string `json:"error"`
}

// Saved and Lost count rows over all tables.
func (r *Recovery) Saved() (n int64) {
	for _, t := range r.Tables {
		n += t.Rows
	}
	return n
}

// Lost counts over all tables.
func (r *Recovery) Lost() (n int64) {
	for _, t := range r.Tables {
		n += t.Lost
	}
	return n
}

// ErrNothingSaved says that a source cannot be read at all.
var ErrNothingSaved = errors.New("nothing can be read of it")

// Recover reads what can be read of a database into a new one. The source is copied with its WAL first and only the
// copy is opened. The result is not put in anybody's place.
func Recover(ctx context.Context, o RecoverOptions) (*Recovery, error) {
	r := &Recovery{Operation: "recover", Source: o.Source, Output: o.Output, Tables: []RecoveredTable{}, Errors: []string{}}
	if o.InspectOnly {
		r.Operation, r.Output = "inspect", ""
	} else if err := checkOutput(o.Source, o.Output); err != nil {
		return r, err
	}
	base := o.WorkDir
	if base == "" && !o.InspectOnly {
		base = filepath.Dir(o.Output)
	}
	work, err := scratch.Temp(base, "hermes-session-recovery-*")
	if err != nil {
		return r, fmt.Errorf("recover %s: %w", o.Source, err)
	}
	defer func() { _ = work.Remove() }()
	if err := r.recover(ctx, o, work.Path); err != nil {
		return r, fmt.Errorf("recover %s: %w", o.Source, err)
	}
	return r, nil
}

func (r *Recovery) recover(ctx context.Context, o RecoverOptions, work string) error {
	copied := filepath.Join(work, "source.db")
	if err := r.copyBundle(o.Source, copied); err != nil {
		return err
	}
	mended, err := mendHeader(copied)
	if err != nil {
		return err
	}
	if mended != "" {
		r.Errors = append(r.Errors, mended)
	}
	from, err := openDamaged(copied)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNothingSaved, explain(err))
	}
	defer from.close()
	if o.InspectOnly {
		return r.salvage(ctx, from, nil)
	}
	fresh := filepath.Join(work, "state.db")
	if err := newStore(ctx, fresh, o.Log); err != nil {
		return err
	}
	to, err := dial(fresh, "_foreign_keys=0", "journal_mode=DELETE", "synchronous=OFF", "temp_store=MEMORY")
	if err != nil {
		return err
	}
	if err = holdIndex(to); err == nil {
		err = r.salvage(ctx, from, to)
	}
	if err == nil {
		err = r.adopt(to)
	}
	if err == nil {
		err = r.verify(to)
	}
	to.close()
	if err != nil {
		return err
	}
	if !r.Complete && !o.AllowPartial {
		return fmt.Errorf("%w: %d rows were saved and up to %d are lost; keep what was saved with --allow-partial", ErrPartial, r.Saved(), r.Lost())
	}
	if err := syncFile(fresh); err != nil {
		return err
	}
	if err := os.Link(fresh, o.Output); err != nil { // unlike a rename it replaces nothing
		return r.moveOver(fresh, o.Output, err)
	}
	return syncFile(filepath.Dir(o.Output))
}

// moveOver is for a work folder on another file system.
func (r *Recovery) moveOver(from, to string, why error) error {
	if errors.Is(why, os.ErrExist) {
		return why
	}
	return CopyFile(context.Background(), from, to)
}

// ErrPartial says that rows were lost and nobody said that this is all right.
var ErrPartial = errors.New("the recovery is not complete")

// checkOutput refuses to write over anything.
func checkOutput(source, output string) error {
	if output == "" {
		return fmt.Errorf("recover %s: %w: an output is needed", source, ErrInvalid)
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if exists(output + suffix) {
			return fmt.Errorf("recover to %s: %w: %s is there; choose a new name", output, ErrExists, output+suffix)
		}
		if resolve(source)+suffix == resolve(output) {
			return fmt.Errorf("recover to %s: %w: it belongs to the source", output, ErrInvalid)
		}
	}
	return nil
}

// copyBundle copies the file and what belongs to it, and sees that nobody changed them meanwhile.
func (r *Recovery) copyBundle(source, to string) error {
	before, err := fingerprint(source)
	if err != nil {
		return err
	}
	if free, err := freeSpace(filepath.Dir(to)); err == nil {
		var need int64 = 64 << 20
		for _, f := range before {
			need += 2 * f.size
		}
		if free < need {
			return fmt.Errorf("%w: the copy needs %d MiB in %s, %d are free; choose another folder with --work-dir", ErrDiskFull, need>>20, filepath.Dir(to), free>>20)
		}
	}
	for _, suffix := range []string{"", "-wal", "-journal"} { // the index of the WAL is made again
		err := copyPlain(source+suffix, to+suffix)
		if err != nil && (suffix == "" || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
		if err == nil {
			r.SourceBundle = append(r.SourceBundle, source+suffix)
		}
	}
	after, err := fingerprint(source)
	if err != nil {
		return err
	}
	if r.SourceUnchanged = slices.Equal(before, after); !r.SourceUnchanged {
		return fmt.Errorf("%w: it changed while it was copied; stop every program that uses it and try again", ErrBusy)
	}
	return nil
}

type filePrint struct {
	name  string
	size  int64
	mtime int64
}

func fingerprint(source string) (list []filePrint, err error) {
	for _, suffix := range []string{"", "-wal", "-journal"} {
		st, err := os.Stat(source + suffix)
		if suffix == "" && err != nil {
			return nil, err
		}
		if err == nil {
			if !st.Mode().IsRegular() {
				return nil, fmt.Errorf("%w: %s is not a file", ErrInvalid, source+suffix)
			}
			list = append(list, filePrint{suffix, st.Size(), st.ModTime().UnixNano()})
		}
	}
	return list, nil
}

func copyPlain(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// mendHeader puts a usual header where the copy has none that SQLite would take: often it alone was overwritten, and the
// schema behind it is whole. Where the file was cut it makes the header say so, because SQLite reads none that is
// shorter than it should be. It says what it did, "" if nothing was to be done.
func mendHeader(path string) (mended string, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, headerSize)
	if _, err := io.ReadFull(f, b); err != nil {
		return "", fmt.Errorf("%w: it has fewer bytes than a header", ErrNothingSaved)
	}
	h, size := parseHeader(b), sizeOf(path)
	if h.Valid && h.PageSize >= 512 && h.PageSize&(h.PageSize-1) == 0 && b[21] == 64 && b[22] == 32 && b[23] == 32 {
		pages := uint32(size / int64(h.PageSize))
		if pages >= h.PageCount || sizeOf(path+"-wal") > 0 { // what is missing may be in the WAL
			return "", nil
		}
		binary.BigEndian.PutUint32(b[28:], pages)
		_, err = f.WriteAt(b, 0)
		return fmt.Sprintf("the file was cut: %d of %d pages are there", pages, h.PageCount), err
	}
	const pageSize = 4096
	clear(b)
	copy(b, headerMagic)
	binary.BigEndian.PutUint16(b[16:], pageSize)
	copy(b[18:], []byte{1, 1, 0, 64, 32, 32})
	binary.BigEndian.PutUint32(b[24:], 1)
	binary.BigEndian.PutUint32(b[28:], uint32(size/pageSize))
	binary.BigEndian.PutUint32(b[44:], 4) // format of the schema
	binary.BigEndian.PutUint32(b[56:], 1) // UTF-8
	binary.BigEndian.PutUint32(b[92:], 1)
	_, err = f.WriteAt(b, 0)
	return "the header was damaged; a usual one was put in its place in the copy", err
}

// openDamaged opens a copy of which anything may be wrong.
func openDamaged(path string) (*conn, error) {
	c, err := dial(path, "_busy_timeout=1000", "temp_store=MEMORY", "cell_size_check=ON", "trusted_schema=OFF", "mmap_size=0")
	if err != nil {
		return nil, err
	}
	if err := c.script("SELECT count(*) FROM sqlite_schema"); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// newStore makes an empty state.db at path.
func newStore(ctx context.Context, path string, log hclog.Logger) error {
	s, err := OpenState(ctx, path, Options{Readers: 1, Log: log})
	if err != nil {
		return err
	}
	return s.Close()
}

// adopt makes sessions for messages whose session is lost, so that they can be read and nothing points nowhere.
func (r *Recovery) adopt(to *conn) error {
	t := &tx{conn: to, ctx: background}
	n, err := t.run(`INSERT INTO sessions(id, source, started_at, last_activity_at, message_count, title)
		SELECT m.session_id, 'recovered', min(m.timestamp), max(m.timestamp), count(*), NULL FROM messages AS m
		WHERE m.session_id NOT IN (SELECT id FROM sessions) GROUP BY m.session_id`)
	if err != nil {
		return err
	}
	r.Placeholders = int(n)
	for _, fix := range []string{
		"UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id NOT IN (SELECT id FROM sessions)",
		"UPDATE sessions SET system_prompt_hash = NULL WHERE system_prompt_hash NOT IN (SELECT hash FROM system_prompts)",
		"DELETE FROM session_model_usage WHERE session_id NOT IN (SELECT id FROM sessions)",
		"DELETE FROM schema_version WHERE typeof(version) <> 'integer' OR version NOT BETWEEN 1 AND 10000",
		"INSERT INTO schema_version SELECT 30 WHERE NOT EXISTS (SELECT 1 FROM schema_version)", // as a new file has it
		"DELETE FROM sqlite_sequence WHERE name NOT IN (SELECT name FROM sqlite_schema)",
		"DELETE FROM state_meta WHERE key LIKE 'fts\\_%' ESCAPE '\\'",
	} {
		if _, err := t.run(fix); err != nil {
			return err
		}
	}
	last, err := lastMessage(t)
	if err != nil {
		return err
	}
	return setMarks(t, 0, last+ahead) // the first start puts all messages into the index
}

// holdIndex keeps the triggers from putting messages into the index one by one, of which the sessions may still be missing.
func holdIndex(to *conn) error {
	return setMarks(&tx{conn: to, ctx: background}, 0, math.MaxInt64)
}

func (r *Recovery) verify(to *conn) error {
	t := &tx{conn: to, ctx: background}
	found, err := all(t, scanString, "PRAGMA integrity_check(10)")
	if err != nil {
		return err
	}
	broken, err := all(t, scanString, `SELECT "table" FROM pragma_foreign_key_check`)
	if err != nil {
		return err
	}
	for _, table := range broken {
		found = append(found, "a row of "+table+" points nowhere")
	}
	if r.Verified = strings.Join(found, "") == "ok"; !r.Verified {
		return fmt.Errorf("%w: the new file is not sound: %s", ErrFailed, strings.Join(found, "; "))
	}
	return nil
}
