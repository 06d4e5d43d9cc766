// Command secret is a tool plugin that asks a web service, with a key that it has been granted. The key is fetched
// when it is needed, is in no environment and no file, and never in a result.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

type args struct {
	City string `json:"city" jsonschema:"city name, for example Paris"`
}

type result struct {
	City        string  `json:"city"`
	Temperature float64 `json:"temperature"`
}

// settings come from the supervisor's configuration.
type settings struct {
	URL string `json:"url"`
}

// maxAnswer bounds what is read of an answer, whatever the service sends.
const maxAnswer = 1 << 20

var client = &http.Client{Timeout: 20 * time.Second}

func temperature(ctx context.Context, c *plugins.Call, a args) (r result, err error) {
	s := settings{URL: "http://127.0.0.1:8090"}
	if err := c.Settings(&s); err != nil {
		return r, err
	}
	key, err := c.Secret(ctx, "WEATHER_API_KEY")
	if err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/now?city="+url.QueryEscape(a.City), nil)
	if err != nil {
		return r, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	c.Progress("asking for %s", a.City)
	resp, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return r, err
	case resp.StatusCode == http.StatusNotFound:
		return r, plugins.BadArguments("no city is called %q", a.City)
	case resp.StatusCode != http.StatusOK:
		return r, fmt.Errorf("the weather service answered %s", resp.Status)
	}
	return r, json.Unmarshal(body, &r)
}

func main() {
	plugins.Main("secret", "0.1.0", plugins.Func("temperature", "Temperature in a city, now.", temperature, plugins.ReadOnly(), plugins.Timeout(5*time.Second, 30*time.Second)))
}
