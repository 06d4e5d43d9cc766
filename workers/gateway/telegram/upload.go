package telegram

import (
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// uploadTimeout bounds sending one file; the supervisor's own deadline is shorter as a rule.
const uploadTimeout = 5 * time.Minute

// methods send a kind of file, and the name of its parameter. Photos over 10 MB and other kinds go as documents.
var methods = map[string][2]string{
	"image": {"sendPhoto", "photo"}, "voice": {"sendVoice", "voice"},
	"audio": {"sendAudio", "audio"}, "video": {"sendVideo", "video"},
}

const maxPhoto = 10 << 20

// sendFile sends one file and returns the id of its message. again marks one that may be there already.
func (s *sender) sendFile(ctx context.Context, t target, f gateway.OutFile, again bool) (int, error) {
	method, field := "sendDocument", "document"
	if m, ok := methods[f.Kind]; ok && !(f.Kind == "image" && f.Size > maxPhoto) {
		method, field = m[0], m[1]
	}
	var id int
	err := s.to(ctx, t, fresh, func(t target) error {
		var err error
		before := s.trails.begin(t.chat, 0)
		defer func() { s.trails.end(t.chat, before, id, false, err) }()
		id, err = s.upload(ctx, t, method, field, f, again)
		if method != "sendDocument" && codeOf(err) == 400 && !isNoThread(err) && !isChatGone(err) {
			// Not a picture or a voice after all, or one that Telegram will not show: as it is, then.
			id, err = s.upload(ctx, t, "sendDocument", "document", f, again)
		}
		return err
	})
	return id, err
}

func (s *sender) upload(ctx context.Context, t target, method, field string, f gateway.OutFile, again bool) (int, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, fmt.Errorf("read %s: %w", f.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	params := map[string]string{"chat_id": id64(t.chat)}
	if t.thread != 0 {
		params["message_thread_id"] = id64(int64(t.thread))
	}
	if again {
		params["caption"] = "(sent again: the first time Telegram gave no answer)"
	}
	body, pipe := io.Pipe()
	form := multipart.NewWriter(pipe)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = pipe.CloseWithError(writeForm(form, params, field, f)) // never fails
	}()
	var m sent
	err := s.client.post(ctx, method, form.FormDataContentType(), body, &m)
	_ = body.Close() // ends the writer if the request ended first
	<-written
	return m.ID, err
}

func writeForm(form *multipart.Writer, params map[string]string, field string, f gateway.OutFile) error {
	for k, v := range params {
		if err := form.WriteField(k, v); err != nil {
			return err
		}
	}
	part, err := form.CreateFormFile(field, f.Name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(part, f); err != nil {
		return err
	}
	return form.Close()
}
