package config

import (
	"embed"
	"errors"
	"os"
	"path/filepath"
)

//go:embed template
var templates embed.FS

// A File is one file of a new home.
type File struct {
	Path    string
	Created bool // false: it was there and is as it was
}

// Init makes a home with a commented config.yaml, an empty .env and a SOUL.md. Files that are there stay as they
// are.
func Init(home string) ([]File, error) {
	if err := Prepare(home); err != nil {
		return nil, err
	}
	var files []File
	for _, f := range []struct {
		name, source string
		mode         os.FileMode
	}{
		{FileName, "config.yaml", 0o600},
		{EnvFileName, "env", 0o600},
		{"SOUL.md", "SOUL.md", 0o644},
	} {
		text, err := templates.ReadFile("template/" + f.source)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(home, f.name)
		created, err := createFile(path, text, f.mode)
		if err != nil {
			return nil, invalid("cannot write %s: %v", path, reason(err))
		}
		files = append(files, File{Path: path, Created: created})
	}
	return files, nil
}

// createFile writes a new file; one that exists, a dangling link too, is left alone.
func createFile(path string, text []byte, mode os.FileMode) (bool, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	return true, errors.Join(err, f.Close())
}
