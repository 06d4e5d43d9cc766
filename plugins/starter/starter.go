// Package starter writes the beginning of a tool plugin: a program with one tool, its module, its test, its README.
package starter

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

// The files have a suffix of their own, so that the go command does not take them for a part of this module.
//
//go:embed template
var templates embed.FS

// Options say what the starter is written for.
type Options struct {
	// Module is the path of the new module; empty means example.org/NAME.
	Module string
	// Checkout is where the source of hermes-supervisor is, for a build that no proxy serves. It is written into
	// go.mod as a replacement. Empty means that Version is taken from the proxy.
	Checkout string
	// Version is the released version of hermes-supervisor to build with; without a Checkout one is needed.
	Version string
}

// ErrNotEmpty is returned for a folder that holds something: nothing is ever overwritten.
var ErrNotEmpty = errors.New("is there already and not empty")

const sourceModule = "github.com/hermes-supervisor/hermes-supervisor"

// released is what the go command can fetch. Builds of a commit between two releases are called otherwise.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// pluginName is what a plugin and its first tool are called.
var pluginName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}$`)

// Write makes the folder dir with a plugin of this name in it, and returns the names of the files.
func Write(dir, name string, o Options) ([]string, error) {
	if !pluginName.MatchString(name) {
		return nil, fmt.Errorf("the name %q must be lower case letters, digits and _, begin with a letter and have at most 31 of them", name)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return nil, fmt.Errorf("write a plugin into %s: it %w", dir, ErrNotEmpty)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("write a plugin: %w", err)
	}
	if o, err = o.buildable(); err != nil {
		return nil, err
	}
	if o.Module == "" {
		o.Module = "example.org/" + name
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write a plugin: %w", err)
	}
	return fill(dir, name, o)
}

// buildable refuses what the go command would find nothing for: a plugin that cannot be built is no beginning.
func (o Options) buildable() (Options, error) {
	if o.Checkout == "" {
		if !released.MatchString(o.Version) {
			return o, fmt.Errorf("version %s is no release that the go command could fetch: name a checkout of the source (--checkout FOLDER)", o.Version)
		}
		return o, nil
	}
	o.Version = "v0.0.0" // whatever it is called, it is replaced
	mod, err := os.ReadFile(filepath.Join(o.Checkout, "go.mod"))
	if err != nil {
		return o, fmt.Errorf("%s is no checkout of the source: %w", o.Checkout, err)
	}
	if !strings.HasPrefix(string(mod), "module "+sourceModule+"\n") {
		return o, fmt.Errorf("%s is no checkout of the source: its go.mod is not that of %s", o.Checkout, sourceModule)
	}
	return o, nil
}

func fill(dir, name string, o Options) (files []string, err error) {
	sources, err := fs.Glob(templates, "template/*")
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		text, err := template.ParseFS(templates, source)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		if err := text.Execute(&b, struct {
			Options
			Name string
		}{o, name}); err != nil {
			return nil, err
		}
		file := strings.TrimSuffix(filepath.Base(source), ".tmpl")
		if err := os.WriteFile(filepath.Join(dir, file), []byte(b.String()), 0o644); err != nil {
			return nil, fmt.Errorf("write a plugin: %w", err)
		}
		files = append(files, file)
	}
	return files, nil
}
