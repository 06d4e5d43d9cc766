package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// defaultMaxResult is how many characters of a result the model reads at most: about 25,000 tokens, a sixth of a
// usual context window.
const defaultMaxResult = 100_000

// success makes the result of a handler's value, cut to what the model may read.
func success(c *Call, out any) *toolv1.Result {
	content, err := encode(out)
	if err != nil {
		return failure(toolv1.ToolError_KIND_FAILED, "the result of "+c.Tool+" cannot be written as JSON: "+err.Error())
	}
	return &toolv1.Result{Content: fit(c, content)}
}

func failure(kind toolv1.ToolError_Kind, message string) *toolv1.Result {
	return &toolv1.Result{Error: &toolv1.ToolError{Kind: kind, Message: clean(message, 8000)}}
}

// failed makes the result of a handler's error. A context that has ended outranks what the handler made of it.
func failed(ctx context.Context, c *Call, err error) *toolv1.Result {
	var bad *argumentError
	switch {
	case errors.As(err, &bad):
		return failure(toolv1.ToolError_KIND_BAD_ARGUMENTS, err.Error())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failure(toolv1.ToolError_KIND_TIMEOUT, fmt.Sprintf("%s took too long and was ended: %v", c.Tool, err))
	case ctx.Err() != nil:
		return failure(toolv1.ToolError_KIND_CANCELLED, fmt.Sprintf("%s was cancelled: %v", c.Tool, err))
	}
	return failure(toolv1.ToolError_KIND_FAILED, err.Error())
}

func encode(out any) (string, error) {
	if v := reflect.ValueOf(out); v.IsValid() && v.Kind() == reflect.String {
		return v.String(), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the reader is a model, not a browser
	if err := e.Encode(out); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// fit returns content as valid UTF-8 within the limit. What is cut goes to a spill file as a whole.
func fit(c *Call, content string) string {
	content = strings.ToValidUTF8(content, "\uFFFD")
	limit := c.env.MaxResult
	if len(content) <= limit || utf8.RuneCountInString(content) <= limit {
		return content
	}
	where := ""
	if f, err := c.Spill(); err != nil {
		c.log.Warn("a result is cut and not kept", "error", err)
	} else {
		_, err = f.WriteString(content)
		if err = errors.Join(err, f.Close()); err != nil {
			c.log.Warn("a result is cut and not kept as a whole", "error", err)
		}
		where = ", the whole is in " + f.Name()
	}
	return clip(content, limit, where)
}

// clip keeps the first 40 % and the last 60 % of limit characters: an end says more often what went wrong.
func clip(content string, limit int, where string) string {
	total := utf8.RuneCountInString(content)
	head := limit * 2 / 5
	tail := limit - head
	i, j := 0, len(content)
	for range head {
		_, n := utf8.DecodeRuneInString(content[i:])
		i += n
	}
	for range tail {
		_, n := utf8.DecodeLastRuneInString(content[:j])
		j -= n
	}
	return fmt.Sprintf("%s\n\n[… %d of %d characters left out here%s …]\n\n%s", content[:i], total-limit, total, where, content[j:])
}

// clean makes s valid UTF-8 of at most limit characters.
func clean(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "…"
}
