package backup_test

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(childVar); name != "" {
		os.Exit(work(name))
	}
	goleak.VerifyTestMain(m)
}

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// home makes a home with these files; a name that ends in .db holds what a Copier of the test copies.
func home(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// plain stands for a copy through SQLite and shows that it was one.
func plain(dir string) backup.Copier {
	return func(_ context.Context, name, to string) error {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return os.WriteFile(to, append([]byte("copied "), b...), 0o600)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func sound(string, string) error { return nil }

var usual = map[string]string{
	"state.db": "state", "state.db-wal": "wal", "kanban.db": "board", "kanban/boards/work/kanban.db": "work", "config.yaml": "model: x",
	".env": "KEY=1", "SOUL.md": "me", "memories/MEMORY.md": "facts", "node_modules/x": "no", "cache/y": "no", "gateway.pid": "1",
	"supervisor.db": "events", "state.db.retired-wal-1/state.db": "evidence",
}

func TestASnapshotHoldsStoresAndSettings(t *testing.T) {
	dir := home(t, usual)
	s, err := backup.Quick(t.Context(), dir, "by hand!", noon, plain(dir))
	if err != nil {
		t.Fatal(err)
	}
	if s.ID != "20261201-120000-by_hand_" || s.FileCount != 5 || len(s.FailedDBs) != 0 {
		t.Errorf("snapshot is %+v", s)
	}
	at := filepath.Join(dir, "state-snapshots", s.ID)
	for name, want := range map[string]string{"state.db": "copied state", "kanban/boards/work/kanban.db": "copied work", ".env": "KEY=1", "SOUL.md": ""} {
		if got := read(t, filepath.Join(at, name)); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	list, err := backup.List(dir)
	if err != nil || len(list) != 1 || list[0].TotalSize != s.TotalSize {
		t.Errorf("list is %+v, %v", list, err)
	}
	if st, err := os.Stat(at); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode is %v, %v", st.Mode(), err)
	}
}

func TestAStoreThatCannotBeCopiedDoesNotCostTheRest(t *testing.T) {
	dir := home(t, usual)
	s, err := backup.Quick(t.Context(), dir, "", noon, func(ctx context.Context, name, to string) error {
		if name == "kanban.db" {
			return errors.New("damaged")
		}
		return plain(dir)(ctx, name, to)
	})
	if err == nil || !slices.Equal(s.FailedDBs, []string{"kanban.db"}) || s.Files["state.db"] == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestPruningKeepsTheNewestWholeSnapshots(t *testing.T) {
	dir := home(t, map[string]string{"config.yaml": "x"})
	for i := range 5 {
		if _, err := backup.Quick(t.Context(), dir, "", noon.Add(time.Duration(i)*time.Hour), plain(dir)); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := backup.Prune(dir, 2)
	if err != nil || len(removed) != 3 {
		t.Fatalf("removed %+v, %v", removed, err)
	}
	list, err := backup.List(dir)
	if err != nil || len(list) != 2 || list[0].ID != "20261201-160000" {
		t.Errorf("left %+v, %v", list, err)
	}
}

// A damaged file of some plugin makes every snapshot miss it; they must not fill the disk day by day, nor push out whole ones.
func TestSnapshotsThatMissADatabaseAreBoundedAndPushOutNoWholeOne(t *testing.T) {
	dir := home(t, map[string]string{"config.yaml": "x", "memory_store.db": "damaged"})
	at := noon
	take := func(copyDB backup.Copier) {
		at = at.Add(time.Hour)
		_, _ = backup.Quick(t.Context(), dir, "", at, copyDB)
	}
	for range 2 {
		take(plain(dir))
	}
	for range 6 {
		take(func(context.Context, string, string) error { return errors.New("damaged") })
	}
	count := func() (whole, partial int) {
		list, err := backup.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if len(s.FailedDBs) > 0 {
				partial++
			} else {
				whole++
			}
		}
		return whole, partial
	}
	if whole, partial := count(); whole != 2 || partial != 6 {
		t.Fatalf("made %d whole ones and %d others", whole, partial)
	}
	if _, err := backup.Prune(dir, 2); err != nil {
		t.Fatal(err)
	}
	if whole, partial := count(); whole != 2 || partial != 2 {
		t.Errorf("left are %d whole ones and %d others", whole, partial)
	}
}

// Names are what snapshots are put in order and removed by. By a clock that was set back the newest one would be the first
// to go, every time.
func TestTheNewestSnapshotsStayWhenTheClockIsSetBack(t *testing.T) {
	dir := home(t, map[string]string{"config.yaml": "x"})
	make1 := func(at time.Time) backup.Snapshot {
		t.Helper()
		s, err := backup.Quick(t.Context(), dir, "auto", at, plain(dir))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i := range 3 {
		make1(noon.Add(time.Duration(i) * 24 * time.Hour))
	}
	var made []string
	for i := range 2 {
		s := make1(noon.Add(time.Duration(i-48) * time.Hour))
		if at := noon.Add(time.Duration(i-48) * time.Hour).Format(time.RFC3339); s.Timestamp != at {
			t.Errorf("the time of %s is %s, not %s", s.ID, s.Timestamp, at)
		}
		made = append([]string{s.ID}, made...)
	}
	if _, err := backup.Prune(dir, 2); err != nil {
		t.Fatal(err)
	}
	list, err := backup.List(dir)
	if err != nil || len(list) != 2 || list[0].ID != made[0] || list[1].ID != made[1] {
		t.Errorf("left are %+v of %v, %v", list, made, err)
	}
}

// One that is killed leaves a folder, which the next one removes.
func TestWhatKilledCopiesLeftIsRemovedByTheNext(t *testing.T) {
	out := t.TempDir()
	dir := home(t, map[string]string{
		"config.yaml": "x", "state-snapshots/.20261201-110000.77.partial/state.db": "half", "state-snapshots/.20261201-110001.78.partial/state.db": "half",
	})
	if err := errors.Join(os.Mkdir(filepath.Join(out, ".hermes-backup-one.partial"), 0o700), os.Mkdir(filepath.Join(out, ".hermes-backup-two.partial"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Quick(t.Context(), dir, "", noon, plain(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Zip(t.Context(), dir, filepath.Join(out, "b.zip"), plain(dir)); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{out, filepath.Join(dir, "state-snapshots")} {
		list, err := os.ReadDir(place)
		if err != nil || len(list) != 1 {
			t.Errorf("%s has %v, %v", place, list, err)
		}
	}
}

func TestABackupLeavesOutWhatCanBeMadeAgain(t *testing.T) {
	dir := home(t, usual)
	out := filepath.Join(dir, "b.zip") // in the home itself: it must not hold itself
	made, err := backup.Zip(t.Context(), dir, out, plain(dir))
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(out)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	want := []string{".env", "SOUL.md", "config.yaml", "kanban.db", "kanban/boards/work/kanban.db", "memories/MEMORY.md", "state.db"}
	if slices.Sort(names); !slices.Equal(names, want) || made.Files != len(want) {
		t.Errorf("%d files: %v", made.Files, names)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*partial")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := backup.Zip(t.Context(), dir, out, plain(dir)); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second one over the first: %v", err)
	}
}

// A home can be a link, files in it can be, and not everything that is called .db is a database.
func TestABackupHasWhatLinksLeadToAndWhatOnlyLooksLikeADatabase(t *testing.T) {
	elsewhere := t.TempDir()
	dir := home(t, map[string]string{"state.db": "state", "skills/thumbs.db": "pictures", "skills/real.db": "SQLite format 3\x00"})
	if err := errors.Join(os.WriteFile(filepath.Join(elsewhere, "SOUL.md"), []byte("me"), 0o600), os.Symlink(filepath.Join(elsewhere, "SOUL.md"), filepath.Join(dir, "SOUL.md")),
		os.Symlink(elsewhere, filepath.Join(dir, "folder")), os.Symlink(filepath.Join(elsewhere, "none"), filepath.Join(dir, "broken")), os.Symlink(dir, filepath.Join(elsewhere, "home"))); err != nil {
		t.Fatal(err)
	}
	link, out := filepath.Join(elsewhere, "home"), filepath.Join(t.TempDir(), "b.zip")
	if _, err := backup.Zip(t.Context(), link, out, plain(link)); err != nil {
		t.Fatal(err)
	}
	fresh := t.TempDir()
	checked := []string{}
	if _, err := backup.Restore(fresh, out, noon, func(name, _ string) error { checked = append(checked, name); return nil }); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"state.db": "copied state", "SOUL.md": "me", "skills/thumbs.db": "pictures", "skills/real.db": "copied SQLite format 3\x00", "folder/SOUL.md": ""} {
		if got := read(t, filepath.Join(fresh, name)); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if !slices.Equal(checked, []string{"state.db"}) { // the stand-in for a copy makes another file of real.db
		t.Errorf("checked are %v", checked)
	}
}

func TestARestoreKeepsWhatWasThere(t *testing.T) {
	dir := home(t, usual)
	out := filepath.Join(t.TempDir(), "b.zip")
	if _, err := backup.Zip(t.Context(), dir, out, plain(dir)); err != nil {
		t.Fatal(err)
	}
	other := home(t, map[string]string{"state.db": "newer", "state.db-wal": "its wal", "SOUL.md": "somebody else", "extra": "stays", "gateway.pid": "7"})
	r, err := backup.Restore(other, out, noon, sound)
	if err != nil || len(r.Files) != 7 {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, want := range map[string]string{"state.db": "copied state", "state.db-wal": "", "SOUL.md": "me", "extra": "stays", "gateway.pid": "7"} {
		if got := read(t, filepath.Join(other, name)); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	kept := filepath.Join(other, "state-snapshots", r.Kept)
	if list, err := backup.List(other); err != nil || len(list) != 1 || list[0].FileCount != 2 || list[0].Files["state.db-wal"] == 0 {
		t.Errorf("snapshots %+v, %v", list, err)
	}
	if read(t, filepath.Join(kept, "state.db")) != "newer" || read(t, filepath.Join(kept, "state.db-wal")) != "its wal" {
		t.Error("what was replaced is not kept")
	}
	// And back again.
	from, err := backup.Find(other, r.Kept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(other, from, noon.Add(time.Hour), sound); err != nil {
		t.Fatal(err)
	}
	if read(t, filepath.Join(other, "state.db")) != "newer" || read(t, filepath.Join(other, "state.db-wal")) != "its wal" || read(t, filepath.Join(other, "SOUL.md")) != "somebody else" {
		t.Error("the way back is not whole")
	}
}

func TestADamagedBackupChangesNothing(t *testing.T) {
	dir := home(t, usual)
	out := filepath.Join(t.TempDir(), "b.zip")
	if _, err := backup.Zip(t.Context(), dir, out, plain(dir)); err != nil {
		t.Fatal(err)
	}
	before := read(t, filepath.Join(dir, "state.db"))
	_, err := backup.Restore(dir, out, noon, func(name, _ string) error {
		return fmt.Errorf("%s is damaged", name)
	})
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("error is %v", err)
	}
	if read(t, filepath.Join(dir, "state.db")) != before {
		t.Error("the store was changed")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".restore-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A restore that is killed after everything is unpacked is finished later; one that is killed before leaves nothing.
func TestAKilledRestoreIsFinishedOrUndone(t *testing.T) {
	dir := home(t, map[string]string{
		"state.db": "old", "state.db-wal": "old wal", "config.yaml": "old",
		".restore-ready-x/state.db": "new", ".restore-ready-x/memories/MEMORY.md": "new", ".restore-unpack-y/state.db": "half",
		"state-snapshots/x-pre-restore/config.yaml": "before", "state-snapshots/.z.1.partial/state.db": "half",
	})
	files, err := backup.Resume(dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for name, want := range map[string]string{
		"state.db": "new", "state.db-wal": "", "memories/MEMORY.md": "new", "config.yaml": "old",
		"state-snapshots/x-pre-restore/state.db": "old", "state-snapshots/x-pre-restore/state.db-wal": "old wal",
		"state-snapshots/x-pre-restore/config.yaml": "before",
	} {
		if got := read(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if list := backup.Leftovers(dir); len(list) != 2 {
		t.Errorf("leftovers are %v", list)
	}
	if removed, err := backup.Sweep(dir); err != nil || len(removed) != 2 {
		t.Errorf("removed %v, %v", removed, err)
	}
	for _, pattern := range []string{".restore-*", "state-snapshots/.*"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	if files, err := backup.Resume(dir); err != nil || len(files) != 0 {
		t.Errorf("a second time: %v, %v", files, err)
	}
}

func TestABackupThatLeadsOutOfTheHomeIsRefused(t *testing.T) {
	out := filepath.Join(t.TempDir(), "evil.zip")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create("../outside")
	if err != nil {
		t.Fatal(err)
	}
	_, werr := w.Write([]byte("x"))
	if err := errors.Join(werr, z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.TempDir(), out, noon, sound); err == nil || !strings.Contains(err.Error(), "leads out of the home") {
		t.Errorf("error is %v", err)
	}
}

// The rest is what an operator has when a disk fails or a file of root lies in the home; half a file is none.
func TestWhatCannotBeReadDoesNotCostTheRestOfABackup(t *testing.T) {
	dir := home(t, usual)
	if err := errors.Join(os.Symlink("/proc/self/mem", filepath.Join(dir, "a-bad-disk")), os.Symlink("loop", filepath.Join(dir, "loop")),
		os.Symlink(t.TempDir(), filepath.Join(dir, "folder"))); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "b.zip")
	made, err := backup.Zip(t.Context(), dir, out, plain(dir))
	if err != nil || made.Files != 7 || len(made.LeftOut) != 2 || made.LeftOut[0].Name != "a-bad-disk" || made.LeftOut[0].Reason != "input/output error" ||
		made.LeftOut[1].Name != "loop" || !slices.Equal(made.Links, []string{"folder"}) {
		t.Errorf("made %+v, %v", made, err)
	}
	r, err := backup.Restore(t.TempDir(), out, noon, sound)
	if err != nil || len(r.Files) != 7 {
		t.Errorf("restored %+v, %v", r, err)
	}
	_, err = backup.Zip(t.Context(), dir, filepath.Join(t.TempDir(), "c.zip"), func(context.Context, string, string) error { return errors.New("damaged") })
	if err == nil {
		t.Error("a database that cannot be copied is no error")
	}
}

// As of a whole backup: one file of root in the home must not keep the stores from being copied, day by day.
func TestWhatCannotBeReadDoesNotCostTheRestOfASnapshot(t *testing.T) {
	dir := home(t, map[string]string{"state.db": "state", "config.yaml": "model: x", "channel_aliases.json/is a folder": "", "gateway": "no folder"})
	link(t, "/proc/self/mem", filepath.Join(dir, ".env"))
	link(t, "auth.json", filepath.Join(dir, "auth.json"))
	link(t, "boards", filepath.Join(dir, "kanban", "boards"))
	want := map[string]string{".env": "input/output error", "auth.json": "too many levels of symbolic links", "kanban/boards/": "too many levels of symbolic links"}
	named := func(left []backup.LeftOut) map[string]string {
		got := map[string]string{}
		for _, l := range left {
			got[l.Name] = l.Reason
		}
		return got
	}
	s, err := backup.Quick(t.Context(), dir, "", noon, plain(dir))
	if err != nil || s.FileCount != 2 || !maps.Equal(named(s.LeftOut), want) {
		t.Errorf("made %+v, %v", s, err)
	}
	if got := tree(t, filepath.Join(dir, "state-snapshots", s.ID)); len(got) != 3 || got["state.db"] != "copied state" {
		t.Errorf("it holds %q", got)
	}
	list, err := backup.List(dir)
	if err != nil || len(list) != 1 || !maps.Equal(named(list[0].LeftOut), want) || len(list[0].Missing()) != len(want) {
		t.Errorf("list is %+v, %v", list, err)
	}
	delete(want, ".env") // that it cannot be read is not known before it is
	if files, left := backup.QuickFiles(dir); len(files) != 3 || !maps.Equal(named(left), want) {
		t.Errorf("planned %+v without %+v", files, left)
	}
}

func TestASnapshotThatMissesAFilePushesOutNoWholeOne(t *testing.T) {
	dir := home(t, map[string]string{"config.yaml": "x"})
	take := func(hours int) backup.Snapshot {
		s, err := backup.Quick(t.Context(), dir, "", noon.Add(time.Duration(hours)*time.Hour), plain(dir))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	whole := take(0)
	link(t, ".env", filepath.Join(dir, ".env"))
	for hours := range 3 {
		take(hours + 1)
	}
	if _, err := backup.Prune(dir, 1); err != nil {
		t.Fatal(err)
	}
	list, err := backup.List(dir)
	if err != nil || len(list) != 2 || list[1].ID != whole.ID {
		t.Errorf("left are %+v, %v", list, err)
	}
}

// What cannot be written is no property of the file that is read then: it is an error, and there is no snapshot.
func TestASnapshotThatCannotBeWrittenIsNone(t *testing.T) {
	dir := home(t, map[string]string{"state.db": "state", "config.yaml": "x"})
	s, err := backup.Quick(t.Context(), dir, "", noon, func(_ context.Context, _, to string) error {
		return errors.Join(os.WriteFile(to, nil, 0o600), os.Mkdir(filepath.Join(filepath.Dir(to), "config.yaml"), 0o700)) // where the next file belongs
	})
	if err == nil || errors.Is(err, backup.ErrWithoutStore) || len(s.LeftOut) != 0 {
		t.Errorf("made %+v, %v", s, err)
	}
	if list, err := backup.List(dir); err != nil || len(list) != 0 {
		t.Errorf("list is %+v, %v", list, err)
	}
}

// A board may be deleted while a backup is made. It is not in the home then, so it is not missing either.
func TestABoardThatVanishesDuringABackupIsLeftOut(t *testing.T) {
	files := map[string]string{"state.db": "state", "kanban.db": "board", "kanban/boards/work/kanban.db": "work", "kanban/boards/home/kanban.db": "home"}
	deleting := func(dir, which string) backup.Copier {
		return func(ctx context.Context, name, to string) error {
			if strings.HasPrefix(name, which) {
				if err := errors.Join(os.WriteFile(to, []byte("half"), 0o600), os.RemoveAll(filepath.Dir(filepath.Join(dir, name)))); err != nil {
					return err
				}
				return errors.Join(os.Remove(to), errors.New("unable to open database file"))
			}
			return plain(dir)(ctx, name, to)
		}
	}
	dir := home(t, files)
	made, err := backup.Zip(t.Context(), dir, filepath.Join(t.TempDir(), "b.zip"), deleting(dir, "kanban/boards/home/"))
	if err != nil || made.Files != 3 || len(made.LeftOut) != 0 {
		t.Errorf("made %+v, %v", made, err)
	}
	dir = home(t, files)
	s, err := backup.Quick(t.Context(), dir, "", noon, deleting(dir, "kanban/boards/"))
	if err != nil || s.FileCount != 2 || len(s.Missing()) != 0 {
		t.Errorf("made %+v, %v", s, err)
	}
	dir = home(t, files)
	state := func(_ context.Context, name, _ string) error {
		return errors.Join(os.Remove(filepath.Join(dir, name)), errors.New("unable to open database file"))
	}
	if made, err := backup.Zip(t.Context(), dir, filepath.Join(t.TempDir(), "b.zip"), func(ctx context.Context, name, to string) error {
		if name == "state.db" {
			return state(ctx, name, to)
		}
		return plain(dir)(ctx, name, to)
	}); err == nil {
		t.Errorf("conversations that vanish are no error: %+v", made)
	}
}
