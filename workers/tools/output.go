package tools

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// maxSpill bounds the file of a whole output. A command that prints without end fills a disk otherwise.
const maxSpill = 64 << 20

// An output keeps the first 40 % and the last 60 % of what is written to it, up to a number of characters: an end
// says more often what went wrong. Once that is exceeded, everything goes to a spill file besides. Its memory is
// bounded whatever is written. It is not safe for concurrent use.
type output struct {
	limit int // characters
	spill func() (*os.File, error)

	head      []byte
	headChars int
	tail      ring
	chars     int64 // in all; a byte that begins no character counts to the one before
	file      *os.File
	spilled   int64
	spillErr  error
}

func newOutput(limit int, spill func() (*os.File, error)) *output {
	return &output{limit: limit, spill: spill, tail: ring{size: (limit - limit*2/5) * utf8.UTFMax}}
}

// Write never fails: what becomes of the spill file is told in the text.
func (o *output) Write(b []byte) (int, error) {
	n := len(b)
	chars := int64(utf8Starts(b))
	if o.chars+chars > int64(o.limit) && o.file == nil && o.spillErr == nil {
		o.open()
	}
	if o.file != nil {
		o.keep(b)
	}
	o.chars += chars
	b = b[o.toHead(b):]
	o.tail.write(b)
	return n, nil
}

// toHead fills the head and returns how much of b it took.
func (o *output) toHead(b []byte) int {
	full := o.limit * 2 / 5
	k := 0
	for k < len(b) && (o.headChars < full || !utf8.RuneStart(b[k])) && o.tail.empty() {
		if utf8.RuneStart(b[k]) {
			o.headChars++
		}
		k++
	}
	o.head = append(o.head, b[:k]...)
	if len(o.head) > o.limit*utf8.UTFMax { // bytes that begin no character
		k -= len(o.head) - o.limit*utf8.UTFMax
		o.head = o.head[:o.limit*utf8.UTFMax]
	}
	return max(0, k)
}

// open begins the spill file with what has been kept so far, which is still everything.
func (o *output) open() {
	o.file, o.spillErr = o.spill()
	if o.spillErr == nil {
		o.keep(o.head)
		o.keep(o.tail.bytes())
	}
}

func (o *output) keep(b []byte) {
	if o.spillErr != nil || o.spilled >= maxSpill {
		return
	}
	n, err := o.file.Write(b[:min(int64(len(b)), maxSpill-o.spilled)])
	o.spilled += int64(n)
	o.spillErr = err
	if o.spilled >= maxSpill {
		_, o.spillErr = io.WriteString(o.file, "\n[the output went on]\n")
	}
}

// finish closes the spill file and returns the text for the model.
func (o *output) finish() string {
	where := ""
	if o.file != nil {
		if err := o.file.Close(); o.spillErr == nil {
			o.spillErr = err
		}
		switch {
		case o.spillErr != nil:
			where = fmt.Sprintf("; its beginning is in %s, which could not be written on: %v", o.file.Name(), o.spillErr)
		case o.spilled >= maxSpill:
			where = fmt.Sprintf("; the first %d MiB are in %s", maxSpill>>20, o.file.Name())
		default:
			where = "; all of it is in " + o.file.Name()
		}
	}
	head, tail := strings.ToValidUTF8(string(o.head), "\uFFFD"), strings.ToValidUTF8(string(o.tail.bytes()), "\uFFFD")
	if o.file == nil && o.spillErr == nil && o.tail.lost == 0 {
		return head + tail
	}
	tail = lastChars(tail, o.limit-o.limit*2/5)
	kept := int64(utf8.RuneCountInString(head) + utf8.RuneCountInString(tail))
	return fmt.Sprintf("%s\n\n[… %d of %d characters left out here%s …]\n\n%s", head, max(0, o.chars-kept), o.chars, where, tail)
}

// lastChars returns the last n characters of s.
func lastChars(s string, n int) string {
	k := len(s)
	for ; n > 0 && k > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:k])
		k -= size
	}
	return s[k:]
}

// utf8Starts counts the bytes that begin a character.
func utf8Starts(b []byte) int {
	n := 0
	for _, c := range b {
		if utf8.RuneStart(c) {
			n++
		}
	}
	return n
}

// A ring keeps the last size bytes written to it. It grows to that as it is needed.
type ring struct {
	size int
	buf  []byte
	next int   // where the oldest byte is, once full
	lost int64 // bytes overwritten
}

func (r *ring) empty() bool { return len(r.buf) == 0 }

func (r *ring) write(b []byte) {
	if over := len(b) - r.size; over > 0 {
		r.lost += int64(over)
		b = b[over:]
	}
	if room := r.size - len(r.buf); room > 0 {
		k := min(room, len(b))
		r.buf = append(r.buf, b[:k]...)
		b = b[k:]
	}
	r.lost += int64(len(b))
	for len(b) > 0 {
		k := copy(r.buf[r.next:], b)
		b = b[k:]
		r.next = (r.next + k) % r.size
	}
}

// bytes returns what is kept, oldest first.
func (r *ring) bytes() []byte {
	return append(append([]byte(nil), r.buf[r.next:]...), r.buf[:r.next]...)
}
