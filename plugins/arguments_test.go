package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

type forecastArgs struct {
	City   string   `json:"city" jsonschema:"city name, for example Paris"`
	Days   int      `json:"days,omitempty" jsonschema:"days ahead" minimum:"1" maximum:"7" default:"3"`
	Unit   string   `json:"unit,omitempty" enum:"celsius, fahrenheit" default:"celsius"`
	Places []place  `json:"places,omitempty"`
	Chat   int64    `json:"chat,omitempty"`
	Share  *float64 `json:"share,omitempty"`
}

type place struct {
	Name string `json:"name"`
	Rank uint8  `json:"rank,omitempty"`
}

func (a forecastArgs) Validate() error {
	if a.City == "Atlantis" {
		return errors.New("there is no weather in Atlantis")
	}
	return nil
}

func echoTool(options ...Option) Tool {
	return Func("forecast", "Weather.", func(_ context.Context, _ *Call, a forecastArgs) (forecastArgs, error) {
		return a, nil
	}, options...)
}

func TestSchemaComesFromTheType(t *testing.T) {
	var got map[string]any
	if err := json.Unmarshal([]byte(echoTool().InputSchema()), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "object", "additionalProperties": false, "required": []any{"city"},
		"properties": map[string]any{
			"city":  map[string]any{"type": "string", "description": "city name, for example Paris"},
			"days":  map[string]any{"type": "integer", "description": "days ahead", "minimum": 1.0, "maximum": 7.0, "default": 3.0},
			"unit":  map[string]any{"type": "string", "enum": []any{"celsius", "fahrenheit"}, "default": "celsius"},
			"chat":  map[string]any{"type": "integer"},
			"share": map[string]any{"type": []any{"null", "number"}},
			"places": map[string]any{"type": "array", "items": map[string]any{
				"type": "object", "additionalProperties": false, "required": []any{"name"},
				"properties": map[string]any{
					"name": map[string]any{"type": "string"},
					"rank": map[string]any{"type": "integer", "minimum": 0.0, "maximum": 255.0},
				},
			}},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestArgumentsAreCheckedBeforeTheHandler(t *testing.T) {
	_, client := served(t, Env{}, echoTool())
	for _, row := range []struct{ name, arguments, want string }{
		{"missing", `{}`, `"city" is missing`},
		{"none at all", ``, `"city" is missing`},
		{"unknown name", `{"city":"Oslo","town":"x"}`, `"town" is not an argument (there are: city, days, unit, places, chat, share)`},
		{"wrong type", `{"city":3}`, `"city" must be string, not integer`},
		{"fraction", `{"city":"Oslo","days":1.5}`, `"days" must be integer, not number`},
		{"number as text", `{"city":"Oslo","days":"2"}`, `"days" must be integer, not string`},
		{"too small", `{"city":"Oslo","days":0}`, `"days" must be at least 1`},
		{"too large", `{"city":"Oslo","days":8}`, `"days" must be at most 7`},
		{"not of the values", `{"city":"Oslo","unit":"kelvin"}`, `"unit" must be one of celsius, fahrenheit`},
		{"inside a list", `{"city":"Oslo","places":[{"name":"a"},{"rank":1}]}`, `"places[1].name" is missing`},
		{"deep range", `{"city":"Oslo","places":[{"name":"a","rank":256}]}`, `"places[0].rank" must be at most 255`},
		{"required null", `{"city":null}`, `"city" must be string, not null`},
		{"two faults", `{"days":9}`, `"city" is missing; "days" must be at most 7`},
		{"cut off", `{"city":"Os`, `they end in the middle of the JSON`},
		{"not JSON", `city=Oslo`, `they are not JSON`},
		{"list", `["Oslo"]`, `they must be a JSON object, not array`},
		{"two objects", `{"city":"Oslo"}{"city":"Rome"}`, `there is more after the JSON object`},
		{"huge number", `{"city":"Oslo","days":1e400}`, `the number 1e400 is out of range`},
		{"own check", `{"city":"Atlantis"}`, `there is no weather in Atlantis`},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := call(t.Context(), t, client, "forecast", row.arguments).result
			if r.Error.GetKind() != toolv1.ToolError_KIND_BAD_ARGUMENTS {
				t.Fatalf("kind %v, content %q, want bad arguments", r.Error.GetKind(), r.Content)
			}
			if !strings.Contains(r.Error.Message, row.want) || !strings.HasPrefix(r.Error.Message, "arguments of forecast: ") {
				t.Errorf("message %q does not say %q", r.Error.Message, row.want)
			}
		})
	}
}

func TestArgumentsReachTheHandler(t *testing.T) {
	_, client := served(t, Env{}, echoTool())
	for _, row := range []struct{ name, arguments, want string }{
		{"defaults", `{"city":"Oslo"}`, `{"city":"Oslo","days":3,"unit":"celsius"}`},
		{"null is absent", `{"city":"Oslo","days":null,"unit":null,"places":null}`, `{"city":"Oslo","days":3,"unit":"celsius"}`},
		{"whole number with a point", `{"city":"Oslo","days":2.0}`, `{"city":"Oslo","days":2,"unit":"celsius"}`},
		{"whole number with an exponent", `{"city":"Oslo","chat":1e3}`, `{"city":"Oslo","days":3,"unit":"celsius","chat":1000}`},
		{"64 bits stay whole", `{"city":"Oslo","chat":9007199254740993}`, `{"city":"Oslo","days":3,"unit":"celsius","chat":9007199254740993}`},
		{"space around", " \n{\"city\":\"Oslo\"} \n", `{"city":"Oslo","days":3,"unit":"celsius"}`},
		{"no escapes for HTML", `{"city":"<a&b>"}`, `{"city":"<a&b>","days":3,"unit":"celsius"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := call(t.Context(), t, client, "forecast", row.arguments).result
			if r.Error != nil || r.Content != row.want {
				t.Errorf("got %q, error %v, want %q", r.Content, r.Error, row.want)
			}
		})
	}
}

func TestAToolThatCannotBeMadeSaysWhy(t *testing.T) {
	type channel struct {
		C chan int `json:"c"`
	}
	type badDefault struct {
		N int `json:"n,omitempty" default:"many"`
	}
	handler := func(context.Context, *Call, forecastArgs) (string, error) { return "", nil }
	for _, row := range []struct {
		name string
		make func()
		want string
	}{
		{"name", func() { Func("For Cast", "x", handler) }, "lower case"},
		{"description", func() { Func("forecast", " ", handler) }, "description is empty"},
		{"arguments", func() { Func("forecast", "x", func(context.Context, *Call, string) (string, error) { return "", nil }) }, "must be a struct"},
		{"type", func() {
			Func("forecast", "x", func(context.Context, *Call, channel) (string, error) { return "", nil })
		}, "unsupported"},
		{"default", func() {
			Func("forecast", "x", func(context.Context, *Call, badDefault) (string, error) { return "", nil })
		}, "badDefault"},
		{"timeout", func() { Func("forecast", "x", handler, Timeout(2, 1)) }, "timeout"},
		{"check", func() {
			Func("forecast", "x", handler, Check(func(context.Context, place) Verdict { return Allow("") }))
		}, "check takes plugins.place"},
	} {
		t.Run(row.name, func(t *testing.T) {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, row.want) {
					t.Errorf("panic %q does not say %q", p, row.want)
				}
			}()
			row.make()
		})
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"city":"Oslo"}`, `{"city":"Oslo","days":1e3}`, `{"places":[{"name":null}]}`, `[[[`, `{"city":1,"city":"x"}`, `{"chat":1e999999999}`} {
		f.Add(s)
	}
	tool := echoTool()
	f.Fuzz(func(t *testing.T, text string) {
		checked, err := tool.input.arguments("forecast", text)
		if err != nil {
			var bad *argumentError
			if !errors.As(err, &bad) {
				t.Fatalf("%q: %v is not an error of the arguments", text, err)
			}
			return
		}
		in, err := decode[forecastArgs]("forecast", checked)
		if err == nil && (in.Days < 1 || in.Days > 7 || in.Unit != "celsius" && in.Unit != "fahrenheit") {
			t.Fatalf("%q passed as %+v", text, in)
		}
	})
}
