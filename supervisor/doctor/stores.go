package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
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
	boards, _ := filepath.Glob(filepath.Join(scratch.Literal(s.Home), "kanban", "boards", "*", "kanban.db"))
	for _, path := range append([]string{filepath.Join(s.Home, "state.db"), filepath.Join(s.Home, "kanban.db")}, boards...) {
		list, err := store.Holders(path)
		if err != nil {
			return Finding{Name: "holders", State: Warn, Detail: err.Error()}
		}
		for _, h := range list {
			if int64(h.PID) != own && !slices.Contains(found, h.String()) { // it may hold each of the stores
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
			f.Detail += fmt.Sprintf(", %s, %s", wording.Count(c.Sessions, "session", "sessions"), wording.Count(c.Messages, "message", "messages"))
		}
		const much = 50 << 20
		switch {
		case len(c.Damage) > 0:
			f.State, f.Detail = Fail, c.Damage[0]
			f.Advice = "stop the supervisor; hermes-supervisor sessions recover --source " + filepath.Join(s.Home, c.Store) + " --inspect-only, or restore a snapshot"
		case len(c.WrongIndices) > 0:
			f.State, f.Detail = Fail, "indices do not fit their tables: "+strings.Join(c.WrongIndices, ", ")
			s.mendable(&f, c)
		case len(c.IndexDamage) > 0:
			f.State, f.Detail = Warn, "the search index is damaged: "+c.IndexDamage[0]
			s.mendable(&f, c)
		case len(c.MissingIndices) > 0:
			f.State, f.Detail = Warn, "indices are missing, which makes it slow: "+strings.Join(c.MissingIndices, ", ")
			s.mendable(&f, c)
		case c.WalBytes > much && s.Running == nil:
			f.State = Warn
			s.mendable(&f, c)
			f.repair.plan = []string{fmt.Sprintf("%s-wal: its %d MiB go into the file", c.Store, c.WalBytes>>20)}
			f.Advice = "doctor --fix, or start the supervisor: both put the WAL into the file; never delete it"
		case c.FreeBytes > c.Bytes/4 && c.FreeBytes > much:
			f.Detail += fmt.Sprintf(", of which %d MiB are empty (sessions optimize)", c.FreeBytes>>20)
		}
		list = append(list, f)
	}
	return list
}

// mendable adds the repair of what is derived in a store.
func (s Subject) mendable(f *Finding, c *controlv1.StoreCheck) {
	var plan []string
	for _, name := range c.WrongIndices {
		plan = append(plan, c.Store+": index "+name+" is built again")
	}
	for _, name := range c.MissingIndices {
		plan = append(plan, c.Store+": index "+name+" is made")
	}
	if len(c.IndexDamage) > 0 {
		plan = append(plan, c.Store+": the search index is built again; messages are kept")
	}
	f.Advice = "hermes-supervisor doctor --fix"
	f.repair = &repair{plan: plan, stores: true, do: func(ctx context.Context) ([]string, error) {
		done, err := s.Mend(ctx, c.Store)
		if err != nil {
			return done, err
		}
		return append(done, s.after(ctx, c.Store)...), nil
	}}
}

// after looks at a store once more and says how it is now.
func (s Subject) after(ctx context.Context, name string) []string {
	checks, err := s.Check(ctx)
	if err != nil {
		return []string{name + " could not be looked at again: " + err.Error()}
	}
	for _, c := range checks {
		if c.Store != name {
			continue
		}
		if n := len(c.Damage) + len(c.IndexDamage) + len(c.WrongIndices) + len(c.MissingIndices); n > 0 {
			return []string{fmt.Sprintf("%s still has %s; run doctor again", name, wording.Count(n, "finding", "findings"))}
		}
		return []string{fmt.Sprintf("%s is sound now, WAL %d MiB", name, c.WalBytes>>20)}
	}
	return nil
}

// leftovers are what killed processes left half made. A supervisor removes them at its start.
func (s Subject) leftovers() Finding {
	found := s.halfMade()
	if len(found) == 0 {
		return ok("leftovers", "none")
	}
	f := Finding{Name: "leftovers", State: Warn, Detail: fmt.Sprintf("%d half made files: %s", len(found), strings.Join(found, ", ")),
		Advice: "the next start of the supervisor removes them, and finishes a restore that was cut off; so does doctor --fix"}
	if s.Running != nil {
		f.Advice = "the next start of the supervisor removes them; doctor --fix does while none runs"
		return f
	}
	var plan []string
	for _, path := range found {
		verb := "removed"
		if strings.HasPrefix(filepath.Base(path), ".restore-ready-") {
			verb = "a restore that was cut off, finished"
		}
		plan = append(plan, path+": "+verb)
	}
	f.repair = &repair{plan: plan, stores: true, do: func(context.Context) ([]string, error) {
		return plan, s.Own(func() error {
			_, err := backup.Resume(s.Home)
			_, serr := backup.Sweep(s.Home)
			return errors.Join(err, serr, s.sweepStores())
		})
	}}
	return f
}

// sweepStores removes what lies half made beside stores. It looks again: the lock was not held before.
func (s Subject) sweepStores() (err error) {
	for _, path := range s.halfMade() {
		if strings.Contains(filepath.Base(path), ".db.") {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// halfMade lists what no living process makes, and restores that were cut off.
func (s Subject) halfMade() (found []string) {
	for _, name := range []string{"state.db", "kanban.db", "supervisor.db", "kanban/boards/*/kanban.db"} {
		paths, _ := filepath.Glob(filepath.Join(scratch.Literal(s.Home), filepath.FromSlash(name)))
		for _, path := range paths {
			found = append(found, store.Leftovers(path)...)
		}
	}
	waiting, _ := filepath.Glob(filepath.Join(scratch.Literal(s.Home), ".restore-ready-*"))
	return append(append(found, backup.Leftovers(s.Home)...), waiting...)
}

// mostListed copies are named one by one.
const mostListed = 10

// evidence are the copies of what was lost or moved aside: they are kept until a person has looked at them.
func (s Subject) evidence() Finding {
	var found []string
	var size int64
	for _, pattern := range []string{"*.db.retired-wal-*", "*.db.zeroed-*.bak", "*.db.notadb-*.bak", "*.db.corrupt.*.bak", "*.db.malformed-backup-*", "*.db.damaged-*-wal"} {
		list, _ := filepath.Glob(filepath.Join(scratch.Literal(s.Home), pattern))
		for _, path := range list {
			if strings.HasSuffix(path, ".partial") {
				continue
			}
			n := sizeBelow(path)
			size += n
			found = append(found, fmt.Sprintf("%s (%d KiB)", filepath.Base(path), n>>10))
		}
	}
	if len(found) == 0 {
		return ok("kept_copies", "none")
	}
	detail := fmt.Sprintf("%s, %d MiB: %s", wording.Count(len(found), "copy of a lost or damaged file", "copies of lost or damaged files"), size>>20,
		strings.Join(found[:min(len(found), mostListed)], ", "))
	if len(found) > mostListed {
		detail += fmt.Sprintf(" and %d more", len(found)-mostListed)
	}
	return Finding{Name: "kept_copies", State: Warn, Detail: detail,
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
