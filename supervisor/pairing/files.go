package pairing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const limitsFile = "_rate_limits.json"

func pendingFile(platform string) string  { return platform + "-pending.json" }
func approvedFile(platform string) string { return platform + "-approved.json" }

// platformName keeps a name from leading out of the folder, and from a file that is none of a platform.
var platformName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func checkName(platform string) error {
	if !platformName.MatchString(platform) {
		return fmt.Errorf("%q: %w (telegram, …)", platform, ErrName)
	}
	return nil
}

// folders returns where files are written, and where an earlier or later Hermes may have left others.
func (s *Store) folders() (active, other string) {
	older, newer := filepath.Join(s.home, "pairing"), filepath.Join(s.home, "platforms", "pairing")
	if info, err := os.Stat(older); err == nil && info.IsDir() {
		return older, newer
	}
	return newer, older
}

// platforms returns one platform, or all that have a file.
func (s *Store) platforms(one string) ([]string, error) {
	if one != "" {
		return []string{one}, checkName(one)
	}
	var names []string
	active, other := s.folders()
	for _, dir := range []string{active, other} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list pairing files: %w", err)
		}
		for _, e := range entries {
			for _, kind := range []string{"-pending.json", "-approved.json"} {
				if name, ok := strings.CutSuffix(e.Name(), kind); ok && checkName(name) == nil {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// read decodes a file into v; one that is not there leaves v as it is.
func read(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(strings.TrimPrefix(string(b), "\ufeff")), v)
	}
	if err != nil {
		return fmt.Errorf("pairing file %s: %w; mend or remove it", path, err)
	}
	return nil
}

// pending returns the requests of a platform that have not expired. Records of an old form count as expired.
func (s *Store) pending(platform string) (map[string]pendingEntry, error) {
	raw := map[string]json.RawMessage{}
	active, _ := s.folders()
	if err := read(filepath.Join(active, pendingFile(platform)), &raw); err != nil {
		return nil, err
	}
	live := map[string]pendingEntry{}
	for id, b := range raw {
		var e pendingEntry
		if json.Unmarshal(b, &e) == nil && e.Hash != "" && e.Salt != "" && s.now().Sub(at(e.CreatedAt)) <= CodeTTL {
			live[id] = e
		}
	}
	return live, nil
}

// approved returns the people of a platform, of both folders.
func (s *Store) approved(platform string) (map[string]approvedEntry, error) {
	people := map[string]approvedEntry{}
	active, other := s.folders()
	for _, dir := range []string{other, active} {
		raw := map[string]json.RawMessage{}
		if err := read(filepath.Join(dir, approvedFile(platform)), &raw); err != nil {
			return nil, err
		}
		for id, b := range raw {
			var e approvedEntry
			_ = json.Unmarshal(b, &e) // who is named is approved, whatever else the record says
			people[id] = e
		}
	}
	return people, nil
}

// limits returns the numbers of the shared file; what is no number is of another program and stays out.
func (s *Store) limits() (map[string]float64, error) {
	raw := map[string]json.RawMessage{}
	active, _ := s.folders()
	if err := read(filepath.Join(active, limitsFile), &raw); err != nil {
		return nil, err
	}
	limits := map[string]float64{}
	for k, b := range raw {
		var v float64
		if json.Unmarshal(b, &v) == nil {
			limits[k] = v
		}
	}
	return limits, nil
}

// change rewrites an object in the active folder and keeps the records that it does not touch as they are.
func (s *Store) change(name string, edit func(map[string]json.RawMessage) error) error {
	active, _ := s.folders()
	raw := map[string]json.RawMessage{}
	if err := read(filepath.Join(active, name), &raw); err != nil {
		return err
	}
	if err := edit(raw); err != nil {
		return err
	}
	return s.save(name, raw)
}

// everywhere edits a file in both folders, where it is there.
func (s *Store) everywhere(name string, edit func(map[string]json.RawMessage)) error {
	active, other := s.folders()
	for _, dir := range []string{active, other} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		raw := map[string]json.RawMessage{}
		if err := read(path, &raw); err != nil {
			return err
		}
		edit(raw)
		if err := write(path, raw); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) save(name string, v any) error {
	active, _ := s.folders()
	if err := os.MkdirAll(active, 0o700); err != nil {
		return fmt.Errorf("pairing folder: %w", err)
	}
	return write(filepath.Join(active, name), v)
}

// write replaces a file as a whole, durably and for its owner alone.
func write(path string, v any) (err error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return fmt.Errorf("write pairing file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write pairing file: %w", err)
		}
	}()
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
