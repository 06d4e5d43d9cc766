package telegram

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// outFile makes a file to send.
func outFile(t *testing.T, dir, name, data string) gateway.OutFile {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return gateway.OutFile{File: f, Kind: gateway.KindOf(name), Name: name, Size: int64(len(data))}
}

func TestFilesAreSentAfterTheText(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		files := []gateway.OutFile{
			outFile(t, r.files, "report.pdf", "%PDF"), outFile(t, r.files, "plot.png", "\x89PNG"), outFile(t, r.files, "note.ogg", "OggS"),
		}
		out := r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "Here they are.", TurnID: "turn_1", Files: files})
		if ids := out[len(out)-1].MessageIDs; len(ids) != 4 {
			t.Errorf("%d messages: %v", len(ids), ids)
		}
		var got []string
		for _, m := range r.bot.Messages(ann) {
			got = append(got, m.Kind+" "+m.File.Name+" "+string(m.File.Data))
		}
		want := "text  |document report.pdf %PDF|photo plot.png \x89PNG|voice note.ogg OggS"
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("the chat shows %q, want %q", s, want)
		}
		if n := len(r.bot.Calls("editMessageText")); n != 1 {
			t.Errorf("the text was written %d times", n)
		}
	})
}

func TestAPictureThatIsNoneGoesAsADocument(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Method: "sendPhoto", Status: 400, Description: "Bad Request: IMAGE_PROCESS_FAILED"})
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Files: []gateway.OutFile{outFile(t, r.files, "odd.png", "no picture")}})
		if m := r.bot.Messages(ann); len(m) != 1 || m[0].Kind != "document" || string(m[0].File.Data) != "no picture" {
			t.Errorf("the chat shows %+v", m)
		}
	})
}

// A file whose sending got no answer is unknown, and a repeat carries a mark.
func TestAFileThatMayHaveArrivedIsRepeatedWithAMark(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		f := outFile(t, r.files, "report.pdf", "%PDF")
		r.bot.Fail(bottest.Fault{Kind: bottest.CutAfter, Method: "sendDocument", Times: 1})
		d := gateway.Delivery{ID: 1, To: to(ann), Files: []gateway.OutFile{f}, Attempt: 1}
		if out := r.attempt(d); out.State != gateway.StateUnknown || out.Detail == "" {
			t.Fatalf("outcome %+v, want unknown", out)
		}
		r.stop() // it is known to the next process too
		r.start()
		r.deliver(d)
		m := r.bot.Messages(ann)
		if len(m) != 2 || m[0].Text != "" || !strings.Contains(m[1].Text, "sent again") {
			t.Errorf("the chat shows %+v", m)
		}
	})
}

func TestFilesAreSentOnceThoughTheReportIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		d := gateway.Delivery{ID: 1, To: to(ann), Text: "Here.", Attempt: 1, Files: []gateway.OutFile{
			outFile(t, r.files, "1.pdf", "one"), outFile(t, r.files, "2.pdf", "two"), outFile(t, r.files, "3.pdf", "three"),
		}}
		d.MessageIDs = r.attempt(d).MessageIDs
		for range 3 { // each sends one more file, and dies before it is heard
			r.attempt(d)
			r.stop()
			r.start()
		}
		r.deliver(d)
		var got []string
		for _, m := range r.bot.Messages(ann) {
			got = append(got, m.Text+string(m.File.Data))
		}
		if s := strings.Join(got, " "); s != "Here. one two three" {
			t.Errorf("the chat shows %q", s)
		}
	})
}

func TestAFileThatWasNotSentIsRepeatedWithoutAMark(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Method: "sendDocument", Status: 429, RetryAfter: 3, Times: 1})
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Files: []gateway.OutFile{outFile(t, r.files, "report.pdf", "%PDF")}})
		if m := r.bot.Messages(ann); len(m) != 1 || m[0].Text != "" {
			t.Errorf("the chat shows %+v", m)
		}
	})
}
