package bottest

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// maxBody is more than any request of a bot to the public server may be (50 MB files).
const maxBody = 60 << 20

// An Upload is a file in a request.
type Upload struct {
	Name string
	Data []byte
}

// parseCall reads parameters the four ways that the API allows: query, form, JSON, multipart.
func parseCall(r *http.Request, method string) (Call, error) {
	c := Call{Time: time.Now(), Method: method, Params: map[string]string{}, Files: map[string]Upload{}}
	for k, v := range r.URL.Query() {
		c.Params[k] = v[0]
	}
	if r.Method != http.MethodPost {
		return c, nil
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "":
		return c, nil
	case "application/json":
		return c, c.readJSON(r.Body)
	case "application/x-www-form-urlencoded":
		if err := r.ParseForm(); err != nil {
			return c, err
		}
		for k, v := range r.PostForm {
			c.Params[k] = v[0]
		}
		return c, nil
	case "multipart/form-data":
		return c, c.readParts(r)
	}
	return c, fmt.Errorf("unsupported content type %q", kind)
}

func (c *Call) readJSON(body io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(body, maxBody))
	if err != nil {
		return err
	}
	if len(raw) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return fmt.Errorf("can't parse JSON object: %w", err)
	}
	for k, v := range fields {
		var text string
		if json.Unmarshal(v, &text) == nil {
			c.Params[k] = text
		} else {
			c.Params[k] = string(v)
		}
	}
	return nil
}

func (c *Call) readParts(r *http.Request) error {
	parts, err := r.MultipartReader()
	if err != nil {
		return err
	}
	for {
		p, err := parts.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(p, maxBody))
		if err != nil {
			return err
		}
		if p.FileName() != "" {
			c.Files[p.FormName()] = Upload{Name: p.FileName(), Data: data}
		} else {
			c.Params[p.FormName()] = string(data)
		}
	}
}
