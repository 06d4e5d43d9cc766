package backup_test

import (
	"archive/zip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// opened leaves beside a database what a reader of it leaves there.
func opened(_, path string) error {
	return errors.Join(os.WriteFile(path+"-shm", nil, 0o600), os.WriteFile(path+"-wal", nil, 0o600))
}

// What a backup says that it holds, its dry run, its restore and the dry run of that are one number, and what is not restored is named.
func TestABackupAndItsRestoreCountTheSame(t *testing.T) {
	dir := home(t, usual)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "processes.json"), nil, 0o600), os.WriteFile(filepath.Join(dir, "gateway_state.json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "b.zip")
	made, err := backup.Zip(t.Context(), dir, out, plain(dir))
	if err != nil {
		t.Fatal(err)
	}
	s, err := backup.Quick(t.Context(), dir, "", noon, plain(dir))
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := backup.Files(dir)
	some, _ := backup.QuickFiles(dir)
	if err != nil || len(all) != made.Files || len(some) != s.FileCount {
		t.Errorf("planned %d and %d, made %d and %d, %v", len(all), len(some), made.Files, s.FileCount, err)
	}
	for from, count := range map[string]int{out: made.Files, filepath.Join(dir, "state-snapshots", s.ID): s.FileCount} {
		fresh := t.TempDir()
		plan, perr := backup.Plan(fresh, from, opened)
		r, rerr := backup.Restore(fresh, from, noon, opened)
		if perr != nil || rerr != nil {
			t.Fatal(perr, rerr)
		}
		for what, c := range map[string]backup.Contents{"planned": plan.Contents, "restored": r.Contents} {
			if len(c.Files)+2 != count || !slices.Equal(c.Skipped, []string{"gateway_state.json", "processes.json"}) || len(c.LeftOut) != 0 {
				t.Errorf("%s of %d: %+v", what, count, c)
			}
		}
		if there := tree(t, fresh); len(there) != len(r.Files)+1 { // and the manifest of what was there
			t.Errorf("restored %q, the home has %q", r.Files, there)
		}
	}
}

// Who restores an incomplete backup must hear of it: the home has of that what it had before, or nothing.
func TestARestoreSaysWhatTheBackupMisses(t *testing.T) {
	dir := home(t, map[string]string{"state.db": "state", "kanban.db": "board"})
	link(t, "auth.json", filepath.Join(dir, "auth.json"))
	out := filepath.Join(t.TempDir(), "b.zip")
	if _, err := backup.Zip(t.Context(), dir, out, plain(dir)); err != nil {
		t.Fatal(err)
	}
	s, err := backup.Quick(t.Context(), dir, "", noon, func(ctx context.Context, name, to string) error {
		if name == "kanban.db" {
			return errors.New("damaged")
		}
		return plain(dir)(ctx, name, to)
	})
	if !errors.Is(err, backup.ErrWithoutStore) {
		t.Fatal(err)
	}
	snapshot := filepath.Join(dir, "state-snapshots", s.ID)
	damaged := home(t, map[string]string{"manifest.json": "{", "config.yaml": "x"})
	for from, want := range map[string][]string{out: {"auth.json"}, snapshot: {"kanban.db", "auth.json"}, damaged: {"manifest.json"}} {
		fresh := home(t, map[string]string{"auth.json": "stays", "kanban.db": "stays"})
		r, err := backup.Restore(fresh, from, noon, sound)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range r.LeftOut {
			if names = append(names, l.Name); l.Reason == "" {
				t.Errorf("%s is missing without a reason", l.Name)
			}
		}
		if !slices.Equal(names, want) || read(t, filepath.Join(fresh, "auth.json")) != "stays" {
			t.Errorf("%s: %+v", from, r)
		}
	}
}

// The last backup in which nothing is missing is what a person goes back to; neither worse ones nor other files push it out.
func TestABackupThatMissesAFilePushesOutNoWholeOne(t *testing.T) {
	dir, out := home(t, map[string]string{"config.yaml": "x"}), t.TempDir()
	var made []string
	take := func() {
		path := filepath.Join(out, backup.Name(noon.Add(time.Duration(len(made))*time.Hour)))
		if _, err := backup.Zip(t.Context(), dir, path, plain(dir)); err != nil {
			t.Fatal(err)
		}
		made = append(made, path)
	}
	take() // 0 and 1 are whole, 2 and 3 are not, 4 is no backup, and 5 is whole again
	take()
	link(t, ".env", filepath.Join(dir, ".env"))
	take()
	take()
	made = append(made, filepath.Join(out, backup.Name(noon.Add(4*time.Hour))))
	if err := os.WriteFile(made[4], []byte("no zip file"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep := func(want ...string) {
		t.Helper()
		if removed, err := backup.KeepZips(out, 2); err != nil || !slices.Equal(removed, want) {
			t.Errorf("removed %q, %v, want %q", removed, err, want)
		}
	}
	keep(made[2])
	if err := os.Remove(filepath.Join(dir, ".env")); err != nil {
		t.Fatal(err)
	}
	take()
	keep(made[0])
	take()
	keep(made[4], made[3], made[1])
}

// A list of what is missing that nobody can read is told as well; the files are restored.
func TestAListOfWhatIsMissingThatIsDamagedCostsNoRestore(t *testing.T) {
	out := filepath.Join(t.TempDir(), "b.zip")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for _, name := range []string{"config.yaml", ".hermes-backup-left-out.json"} {
		w, werr := z.Create(name)
		if err = errors.Join(err, werr); err == nil {
			_, err = w.Write([]byte("{"))
		}
	}
	if err := errors.Join(err, z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := backup.Restore(t.TempDir(), out, noon, sound)
	if err != nil || len(r.Files) != 1 || len(r.LeftOut) != 1 || !strings.HasPrefix(r.LeftOut[0].Reason, "what is missing is not known") {
		t.Errorf("%+v, %v", r, err)
	}
}
