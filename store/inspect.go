package store

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An Inspection is what was found in a database that was read as a whole.
type Inspection struct {
	Bytes, WALBytes, FreeBytes int64
	Sessions, Messages         int64
	JournalMode                string
	Damage                     []string // of tables and their indices, empty if sound
	IndexDamage                []string // of full-text indices, which can be built again
	WrongIndices               []string // ordinary indices that do not fit their table, which can be built again
	MissingIndices             []string // of those that this version makes; of a file that it has opened before
}

// maxFindings is how much of a damage is told: more says nothing new.
const maxFindings = 20

// Inspect reads a whole database on a connection of its own and changes nothing. It takes about 6 s a GiB, during which
// its WAL is not emptied.
func Inspect(ctx context.Context, path string) (i Inspection, err error) {
	path = resolve(path)
	mode := "mode=ro&_busy_timeout=5000"
	if p, err := placeOf(filepath.Dir(path)); err == nil && p.readOnly && sizeOf(path+"-wal") == 0 {
		mode += "&immutable=1"
	}
	c, err := dial(path, mode, "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY")
	if err != nil {
		return i, fmt.Errorf("inspect %s: %w", path, explain(err))
	}
	defer c.close()
	i.Bytes, i.WALBytes = sizeOf(path), sizeOf(path+"-wal")
	t := &tx{conn: c, ctx: ctx}
	if err := i.read(t); err != nil && !isDamage(err) {
		return i, fmt.Errorf("inspect %s: %w", path, explain(err))
	} else if err != nil {
		i.Damage = append(i.Damage, err.Error())
	}
	return i, ctx.Err()
}

func (i *Inspection) read(t *tx) error {
	if err := t.get("SELECT journal_mode, freelist_count * page_size FROM pragma_journal_mode, pragma_freelist_count, pragma_page_size", nil, &i.JournalMode, &i.FreeBytes); err != nil {
		return err
	}
	found, err := all(t, scanString, fmt.Sprintf("PRAGMA integrity_check(%d)", maxFindings))
	if err != nil {
		return err
	}
	for _, text := range found {
		switch {
		case text == "ok":
		case strings.Contains(strings.ToLower(text), "fts5"):
			i.IndexDamage = append(i.IndexDamage, text)
		case wrongIndex(text) != "":
			if name := wrongIndex(text); !slices.Contains(i.WrongIndices, name) {
				i.WrongIndices = append(i.WrongIndices, name)
			}
		default:
			i.Damage = append(i.Damage, text)
		}
	}
	broken, err := all(t, scanString, fmt.Sprintf(`SELECT "table" || ' row ' || coalesce(rowid, '?') || ' points to nothing in ' || parent FROM pragma_foreign_key_check LIMIT %d`, maxFindings))
	if err != nil {
		return err
	}
	i.Damage = append(i.Damage, broken...)
	if i.MissingIndices, err = missingIndices(t.conn); err != nil {
		return err
	}
	tables, err := all(t, scanString, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('sessions', 'messages')")
	if err != nil || len(tables) < 2 {
		return err
	}
	return t.get("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)", nil, &i.Sessions, &i.Messages)
}

// indexFinding is what integrity_check says of an index that does not fit its table. An entry that is there twice in a
// unique index is not among it: then the table itself is wrong.
var indexFinding = regexp.MustCompile(`^(?:wrong # of entries in index|row \d+ missing from index|row \d+ values differ from index) (.+)$`)

// wrongIndex returns the index that a finding is about, "" if it is about something else.
func wrongIndex(finding string) string {
	m := indexFinding.FindStringSubmatch(finding)
	if m == nil {
		return ""
	}
	return m[1]
}

// Tally counts the sessions and messages of a file without reading all of it.
func Tally(ctx context.Context, path string) (sessions, messages int64, err error) {
	c, err := dial(resolve(path), "mode=ro&_busy_timeout=5000", "mmap_size=0")
	if err != nil {
		return 0, 0, fmt.Errorf("count %s: %w", path, explain(err))
	}
	defer c.close()
	err = (&tx{conn: c, ctx: ctx}).get("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)", nil, &sessions, &messages)
	if err != nil {
		err = fmt.Errorf("count %s: %w", path, explain(err))
	}
	return sessions, messages, err
}
