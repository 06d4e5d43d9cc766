package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// frameKeys are the keys of adapters.<platform> that the frame reads itself.
var frameKeys = []string{"enabled", "send_from"}

// Settings are the adapter's own keys of adapters.<platform> in config.yaml.
type Settings map[string]any

// own returns the settings without the keys of the frame.
func (s Settings) own() Settings {
	c := maps.Clone(s)
	maps.DeleteFunc(c, func(k string, _ any) bool { return slices.Contains(frameKeys, k) })
	return c
}

// Decode fills into, a pointer to a struct with json tags. Keys that are not given keep their value, so defaults
// are set before the call. A key that the struct does not have, or of a wrong type, is an error that names it.
func (s Settings) Decode(into any) error {
	raw, err := json.Marshal(map[string]any(s))
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("settings: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// A Duration is written as in the rest of the configuration: a Go duration ("30s") or a number of seconds.
type Duration time.Duration

// UnmarshalJSON reads either form.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var seconds float64
	if err := json.Unmarshal(raw, &seconds); err == nil {
		*d = Duration(seconds * float64(time.Second))
		return nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("%s is not a duration (try \"30s\" or 30)", raw)
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration (try \"30s\" or 30)", text)
	}
	*d = Duration(v)
	return nil
}
