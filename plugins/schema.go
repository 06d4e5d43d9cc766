package plugins

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A schema is the JSON schema of an argument type, ready to check values.
type schema struct {
	root     *jsonschema.Schema
	resolved *jsonschema.Resolved
	text     string
}

// schemaFor derives the schema of a struct type from its fields and tags.
func schemaFor(t reflect.Type) (*schema, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("arguments must be a struct, not %s", t)
	}
	root, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	if err := annotate(t, root); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	resolved, err := root.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	text, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	return &schema{root: root, resolved: resolved, text: string(text)}, nil
}

// annotate adds what the tags of t's fields say to the schema that was derived from t.
func annotate(t reflect.Type, s *jsonschema.Schema) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case s == nil:
	case t.Kind() == reflect.Slice && s.Items != nil:
		// The library allows null for every slice. To a model that is one more thing to get wrong.
		if slices.Equal(s.Types, []string{"null", "array"}) {
			s.Type, s.Types = "array", nil
		}
		return annotate(t.Elem(), s.Items)
	case t.Kind() == reflect.Array && s.Items != nil:
		return annotate(t.Elem(), s.Items)
	case t.Kind() == reflect.Map:
		return annotate(t.Elem(), s.AdditionalProperties)
	case t.Kind() == reflect.Struct && s.Properties != nil:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			p := s.Properties[name]
			if p == nil || !f.IsExported() {
				continue
			}
			if err := annotate(f.Type, p); err != nil {
				return err
			}
			if err := annotateField(f, p); err != nil {
				return fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
	}
	return nil
}

func annotateField(f reflect.StructField, p *jsonschema.Schema) error {
	var err error
	if v, ok := f.Tag.Lookup("minimum"); ok {
		if p.Minimum, err = number(v); err != nil {
			return fmt.Errorf("minimum: %w", err)
		}
	}
	if v, ok := f.Tag.Lookup("maximum"); ok {
		if p.Maximum, err = number(v); err != nil {
			return fmt.Errorf("maximum: %w", err)
		}
	}
	if v, ok := f.Tag.Lookup("enum"); ok {
		for _, e := range strings.Split(v, ",") {
			p.Enum = append(p.Enum, strings.TrimSpace(e))
		}
	}
	if v, ok := f.Tag.Lookup("default"); ok {
		p.Default = json.RawMessage(v)
		if p.Type == "string" {
			p.Default = json.RawMessage(strconv.Quote(v))
		}
	}
	return nil
}

func number(s string) (*float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	return &n, err
}
