package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// ls names the files that belong to the database at path.
func ls(t testing.TB, path string) []string {
	t.Helper()
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files
}

func mode(t testing.TB, path string) os.FileMode {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

func TestUnusualPlaces(t *testing.T) {
	for name, make := range map[string]func(dir string) (path string, err error){
		"odd characters": func(dir string) (string, error) { return filepath.Join(dir, "a b?c#d%20é", "state.db"), nil },
		"a link to the directory": func(dir string) (string, error) {
			return filepath.Join(dir, "link", "state.db"), errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", filepath.Join(dir, "link")))
		},
		"a link to the file": func(dir string) (string, error) {
			path := filepath.Join(dir, "elsewhere.db")
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Symlink(path, filepath.Join(dir, "state.db"))); err != nil {
				return "", err
			}
			_, err := storetest.Exec(path, "CREATE TABLE mine(x)")
			return filepath.Join(dir, "state.db"), err
		},
		"a relative path": func(dir string) (string, error) {
			wd, err := os.Getwd()
			if err != nil {
				return "", err
			}
			return filepath.Rel(wd, filepath.Join(dir, "state.db"))
		},
		"a file with another journal mode": func(dir string) (string, error) {
			path := filepath.Join(dir, "state.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return "", err
			}
			_, err := storetest.Exec(path, "PRAGMA journal_mode = DELETE; CREATE TABLE mine(x)")
			return path, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := make(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s, err := store.OpenState(context.Background(), path, store.Options{})
				if err != nil {
					t.Fatal(err)
				}
				accept(t, s, "1")
				if h := s.Health(); h.State != "ok" || h.Name != "state" {
					t.Errorf("health is %+v", h)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if m := mode(t, path); m != 0o600 {
					t.Errorf("mode is %o", m)
				}
			}
		})
	}
}
