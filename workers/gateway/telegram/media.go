package telegram

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

const (
	// maxFile is the largest file that the public server hands out.
	maxFile = 20 << 20
	// fileTimeout bounds fetching the files of one message: those behind it wait. fileTries is how often each is tried.
	fileTimeout = 45 * time.Second
	fileTries   = 2
)

// An attachment is a file of a message that can be fetched.
type attachment struct {
	kind     string // as gateway.File has it
	id       string
	uniqueID string
	name     string
	mime     string
	size     int64
}

// attachments lists the files of a message.
func attachments(m *models.Message) []attachment {
	switch {
	case len(m.Photo) > 0:
		p := m.Photo[0]
		for _, other := range m.Photo {
			if other.Width > p.Width && other.FileSize <= maxFile {
				p = other
			}
		}
		return []attachment{{"image", p.FileID, p.FileUniqueID, "photo.jpg", "image/jpeg", int64(p.FileSize)}}
	case m.Voice != nil:
		return []attachment{{"voice", m.Voice.FileID, m.Voice.FileUniqueID, "voice.ogg", m.Voice.MimeType, m.Voice.FileSize}}
	case m.Audio != nil:
		return []attachment{{"audio", m.Audio.FileID, m.Audio.FileUniqueID, m.Audio.FileName, m.Audio.MimeType, m.Audio.FileSize}}
	case m.Video != nil:
		return []attachment{{"video", m.Video.FileID, m.Video.FileUniqueID, m.Video.FileName, m.Video.MimeType, m.Video.FileSize}}
	case m.VideoNote != nil:
		return []attachment{{"video", m.VideoNote.FileID, m.VideoNote.FileUniqueID, "video.mp4", "video/mp4", int64(m.VideoNote.FileSize)}}
	case m.Document != nil: // an animation is a document too
		return []attachment{{"document", m.Document.FileID, m.Document.FileUniqueID, m.Document.FileName, m.Document.MimeType, m.Document.FileSize}}
	}
	return nil
}

// fetchFiles fetches the files of a message. One that cannot be had is said in the text: the person's words count
// without it.
func (a *Adapter) fetchFiles(ctx context.Context, in *incoming) error {
	fetching, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	for _, m := range in.all {
		for _, at := range attachments(m) {
			f, err := a.fetch(fetching, at)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				a.log.Warn("a file was not fetched", "kind", at.kind, "chat", in.place.chat, "error", err)
				in.body = strings.TrimSpace(in.body + fmt.Sprintf("\n[%s from the user, %q, could not be fetched: %v]", at.kind, at.name, err))
				continue
			}
			in.files = append(in.files, f)
		}
	}
	return nil
}

var errNoFolder = errors.New("there is no folder for files")

func (a *Adapter) fetch(ctx context.Context, at attachment) (gateway.File, error) {
	f := gateway.File{Kind: at.kind, Name: at.name, MIME: at.mime, Size: at.size}
	if a.filesDir == "" {
		return f, errNoFolder
	}
	if at.size > maxFile {
		return f, fmt.Errorf("it has %d MB, Telegram hands out %d", at.size>>20, maxFile>>20)
	}
	f.Path = filepath.Join(a.filesDir, fileName(at.uniqueID)[:16]+"-"+safeName(at.name))
	if info, err := os.Stat(f.Path); err == nil && info.Size() == at.size && at.size > 0 {
		return f, nil // the message came before
	}
	var err error
	for range fileTries {
		if f.Size, err = a.download(ctx, at.id, f.Path); err == nil || ctx.Err() != nil || codeOf(err) == 400 {
			return f, err
		}
	}
	return f, err
}

// download fetches a file to a path, which it has as a whole or not at all.
func (a *Adapter) download(ctx context.Context, id, path string) (int64, error) {
	var info models.File
	if err := a.client.call(ctx, "getFile", &bot.GetFileParams{FileID: id}, &info); err != nil {
		return 0, err
	}
	body, err := a.client.open(ctx, info.FilePath)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	n, err := save(path, body)
	if err != nil {
		return n, a.client.failed(ctx, "download", err, false)
	}
	if info.FileSize > 0 && n != info.FileSize {
		_ = os.Remove(path)
		return n, fmt.Errorf("download: %d of %d bytes came", n, info.FileSize)
	}
	return n, nil
}

// save writes a stream to a file, through another one beside it.
func save(path string, body io.Reader) (int64, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone after the rename
	n, err := io.Copy(f, io.LimitReader(body, maxFile+1))
	if err == nil && n > maxFile {
		err = fmt.Errorf("it is longer than %d MB", maxFile>>20)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	return n, os.Rename(f.Name(), path)
}

// safeName makes a file name of what a stranger chose: letters, digits and a few marks, not long, no leading dot.
func safeName(name string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, name)
	s = strings.TrimLeft(s, "._-")
	if n := len(s); n > 64 {
		s = s[n-64:] // the end has the extension
	}
	if s == "" {
		return "file"
	}
	return s
}
