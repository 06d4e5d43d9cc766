package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// retired names processes that still write into a deleted WAL. Nothing else of the stores is looked at then.
func (s Subject) retired() (list []Finding) {
	for _, who := range store.RetiredHolders(filepath.Join(s.Home, "state.db")) {
		list = append(list, Finding{
			Name: store.CondWALRetired, State: Fail, Detail: who + " still holds a retired WAL generation of state.db; the stores were not looked at, nothing is mended",
			Advice: "nothing is lost: end that process, start again; do not delete any state.db files",
		})
	}
	return list
}

// holders names other programs that have a store open.
func (s Subject) holders() Finding {
	own := int64(0)
	if s.Running != nil {
		own = s.Running.GetSupervisor().GetPid()
	}
	var found []string
	for _, name := range []string{"state.db", "kanban.db"} {
		list, err := store.Holders(filepath.Join(s.Home, name))
		if err != nil {
			return Finding{Name: "holders", State: Warn, Detail: err.Error()}
		}
		for _, h := range list {
			if int64(h.PID) != own {
				found = append(found, h.String())
			}
		}
	}
	if len(found) == 0 {
		return ok("holders", "no other program has a store open")
	}
	return Finding{Name: "holders", State: Warn, Detail: strings.Join(found, "; "), Advice: "two writers on one file are how files are damaged: end it, or give it another home"}
}

// stores says how the running supervisor finds its stores, and reads them as a whole.
func (s Subject) stores(ctx context.Context) (list []Finding) {
	if s.Running != nil {
		for _, x := range s.Running.GetStores() {
			if x.State == "ok" {
				continue
			}
			state := Warn
			if x.State != "degraded" || x.Condition == store.CondFull {
				state = Fail
			}
			list = append(list, Finding{Name: x.Condition, State: state, Detail: "store " + x.Name + ": " + x.Detail, Advice: x.Advice})
		}
	}
	checks, err := s.Check(ctx)
	if err != nil {
		return append(list, Finding{Name: "stores", State: Fail, Detail: "they could not be read: " + err.Error(), Advice: "hermes-supervisor ctl status"})
	}
	for _, c := range checks {
		f := ok("store "+c.Store, fmt.Sprintf("%d MiB, WAL %d MiB, journal %s", c.Bytes>>20, c.WalBytes>>20, c.JournalMode))
		if c.Store == "state.db" {
			f.Detail += fmt.Sprintf(", %d sessions, %d messages", c.Sessions, c.Messages)
		}
		const much = 50 << 20
		switch {
		case len(c.Damage) > 0:
			f.State, f.Detail = Fail, c.Damage[0]
			f.Advice = "stop the supervisor; hermes-supervisor sessions recover --source " + filepath.Join(s.Home, c.Store) + " --inspect-only, or restore a snapshot"
		case len(c.IndexDamage) > 0:
			f.State, f.Detail, f.Advice = Warn, "the search index is damaged: "+c.IndexDamage[0], "nothing: it is built again; messages are kept"
		case c.WalBytes > much && s.Running == nil:
			f.State, f.Advice = Warn, "start the supervisor, which empties the WAL; never delete it"
		case c.FreeBytes > c.Bytes/4 && c.FreeBytes > much:
			f.Detail += fmt.Sprintf(", of which %d MiB are empty (sessions optimize)", c.FreeBytes>>20)
		}
		list = append(list, f)
	}
	return list
}

// leftovers are what killed processes left half made. A supervisor removes them at its start.
func (s Subject) leftovers() Finding {
	found := backup.Leftovers(s.Home)
	for _, pattern := range []string{"*.db.*.part", "state.db.retired-wal-*.partial", ".restore-ready-*"} {
		list, _ := filepath.Glob(filepath.Join(scratch.Literal(s.Home), pattern))
		found = append(found, list...)
	}
	if len(found) == 0 {
		return ok("leftovers", "none")
	}
	return Finding{Name: "leftovers", State: Warn, Detail: fmt.Sprintf("%d half made files, the first is %s", len(found), found[0]),
		Advice: "the next start of the supervisor removes them, and finishes a restore that was cut off"}
}

// evidence are the copies of what was lost or moved aside: they are kept until a person has looked at them.
func (s Subject) evidence() Finding {
	var found []string
	var size int64
	for _, pattern := range []string{"*.db.retired-wal-*", "*.db.zeroed-*.bak", "*.db.notadb-*.bak", "*.db.corrupt.*.bak", "*.db.malformed-backup-*"} {
		list, _ := filepath.Glob(filepath.Join(s.Home, pattern))
		for _, path := range list {
			if strings.HasSuffix(path, ".partial") {
				continue
			}
			found = append(found, path)
			size += sizeBelow(path)
		}
	}
	if len(found) == 0 {
		return ok("kept_copies", "none")
	}
	return Finding{Name: "kept_copies", State: Warn, Detail: fmt.Sprintf("%d copies of lost or damaged files, %d MiB, the newest is %s", len(found), size>>20, found[len(found)-1]),
		Advice: "look into them with: hermes-supervisor sessions recover --source COPY --inspect-only; delete them when nothing is missed"}
}

func sizeBelow(path string) (size int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		} else if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return nil
	})
	return size
}
