package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/plugintest"
)

const key = "a-key-that-nobody-may-see"

// service stands in for the weather service.
func service(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+key:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Query().Get("city") != "Oslo":
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write([]byte(`{"city":"Oslo","temperature":-3.5}`))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestPlugin(t *testing.T) {
	path, url := plugintest.Build(t, "."), service(t).URL
	o := plugintest.Options{Secrets: map[string]string{"WEATHER_API_KEY": key}, Settings: settings{url}}
	plugintest.Run(t, path, o, plugintest.Example{Tool: "temperature", Arguments: `{"city":"Oslo"}`, Want: "-3.5"})

	// The key is used where it is granted, and shown nowhere.
	for name, row := range map[string]struct {
		secrets map[string]string
		city    string
		kind    toolv1.ToolError_Kind
		message string
	}{
		"KeyGranted":    {map[string]string{"WEATHER_API_KEY": key}, "Oslo", 0, ""},
		"CityUnknown":   {map[string]string{"WEATHER_API_KEY": key}, "Nowhere", toolv1.ToolError_KIND_BAD_ARGUMENTS, `no city is called "Nowhere"`},
		"KeyWrong":      {map[string]string{"WEATHER_API_KEY": "x"}, "Oslo", toolv1.ToolError_KIND_FAILED, "401"},
		"KeyNotGranted": {nil, "Oslo", toolv1.ToolError_KIND_FAILED, "not granted"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plugintest.Start(t, path, plugintest.Options{Secrets: row.secrets, Settings: settings{url}})
			got := p.Call(t.Context(), "temperature", `{"city":"`+row.city+`"}`)
			if got.Err != nil || got.Kind != row.kind || !strings.Contains(got.Message, row.message) {
				t.Errorf("%+v", got)
			}
			if strings.Contains(got.Content+got.Message+p.Output(), key) {
				t.Errorf("the key is shown: %+v, %s", got, p.Output())
			}
		})
	}
}
