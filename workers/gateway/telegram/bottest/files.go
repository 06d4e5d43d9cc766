package bottest

import (
	"fmt"
	"net/http"
	"strings"
)

const (
	maxDownload = 20 << 20 // of getFile
	maxUpload   = 50 << 20
	maxCaption  = 1024
)

// file is what a person sent.
type file struct {
	path string
	data []byte
	size int64 // as told, which may be more than there is
}

// serveFile serves what getFile named.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, path string) {
	token, name, _ := strings.Cut(path, "/")
	if token != Token {
		refuse(401, "").write(w)
		return
	}
	call := Call{Method: "download", Params: map[string]string{"path": name}}
	s.mu.Lock()
	var found *file
	for _, f := range s.files {
		if f.path == name {
			found = &f
		}
	}
	s.mu.Unlock()
	if fault := s.faultFor(call); fault != nil {
		if !fault.before(r.Context(), w) {
			s.record(call, reply{desc: fault.Kind.String()})
			return
		}
		if fault.Kind == Refuse {
			s.record(call, fault.reply())
			fault.reply().write(w)
			return
		}
	}
	if found == nil {
		s.record(call, refuse(404, ""))
		refuse(404, "").write(w)
		return
	}
	s.record(call, ok(nil))
	_, _ = w.Write(found.data)
}

func (s *Server) getFile(c Call) reply {
	f, found := s.files[c.Params["file_id"]]
	if !found {
		return refuse(400, "wrong file_id or the file is temporarily unavailable")
	}
	if f.size > maxDownload {
		return refuse(400, "file is too big")
	}
	return ok(map[string]any{"file_id": c.Params["file_id"], "file_unique_id": uniqueID(c.Params["file_id"]), "file_size": f.size, "file_path": f.path})
}

func uniqueID(fileID string) string { return "u" + fileID }

// addFile stores a person's file and returns its id. With mu held.
func (s *Server) addFile(folder, ext string, data []byte, size int64) string {
	id := fmt.Sprintf("F%d", len(s.files)+1)
	if size == 0 {
		size = int64(len(data))
	}
	s.files[id] = file{path: fmt.Sprintf("%s/file_%d%s", folder, len(s.files)+1, ext), data: data, size: size}
	return id
}

// sendFile makes the method that sends files of a kind.
func (s *Server) sendFile(kind string) func(Call) reply {
	return func(c Call) reply {
		ch, refused := s.target(c)
		if refused != nil {
			return *refused
		}
		up, given := c.Files[kind]
		switch {
		case !given || len(up.Data) == 0:
			return refuse(400, "file must be non-empty")
		case len(up.Data) > maxUpload:
			return refuse(413, "Request Entity Too Large")
		}
		m := &Message{From: BotID, Kind: kind, File: up, Thread: c.Int("message_thread_id")}
		if r := m.setText(c, "caption", "caption_entities", maxCaption); r != nil {
			return *r
		}
		if r := m.setReply(c, ch); r != nil {
			return *r
		}
		return ok(s.json(ch, s.add(ch, m)))
	}
}
