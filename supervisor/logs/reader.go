package logs

import (
	"bytes"
	"io"
)

// firstBuffer holds a usual line with what is read ahead. There are two readers a worker for its whole life, so they begin
// small and grow only when a long line or many lines come.
const firstBuffer = 4 << 10

// A LineReader cuts a stream into lines of at most MaxLine bytes. Unlike bufio.Scanner it never gives up.
type LineReader struct {
	r   io.Reader
	buf []byte
	// start and end bound what is read and not yet returned.
	start, end int
	err        error
}

// NewLineReader returns a reader of r's lines.
func NewLineReader(r io.Reader) *LineReader {
	return &LineReader{r: r, buf: make([]byte, firstBuffer)}
}

// Next returns the next line without its end, valid until the next call, and how many bytes of it were dropped. The last
// line of a stream may have no end. The error is the stream's, after all its lines.
func (l *LineReader) Next() (line []byte, dropped int, err error) {
	for {
		if i := bytes.IndexByte(l.buf[l.start:l.end], '\n'); i >= 0 {
			line = l.buf[l.start : l.start+i]
			l.start += i + 1
			return line, 0, nil
		}
		if l.end-l.start == MaxLine {
			return l.long()
		}
		if l.err != nil {
			line = l.buf[l.start:l.end]
			l.start = l.end
			if len(line) > 0 {
				return line, 0, nil
			}
			return nil, 0, l.err
		}
		l.fill()
	}
}

// long returns the beginning of a line that does not fit and reads over the rest of it.
func (l *LineReader) long() (line []byte, dropped int, err error) {
	line = bytes.Clone(l.buf)
	l.start, l.end = 0, 0
	for {
		l.fill()
		if i := bytes.IndexByte(l.buf[:l.end], '\n'); i >= 0 {
			l.start = i + 1
			return line, dropped + i, nil
		}
		dropped += l.end
		l.end = 0
		if l.err != nil {
			return line, dropped, nil
		}
	}
}

func (l *LineReader) fill() {
	if l.err != nil {
		return
	}
	if l.start > 0 {
		copy(l.buf, l.buf[l.start:l.end])
		l.end -= l.start
		l.start = 0
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	l.err = err
	if l.end == len(l.buf) && l.end < MaxLine { // a long line, or a flood that large reads get through faster
		l.buf = append(make([]byte, 0, MaxLine), l.buf...)[:MaxLine]
	}
}

// Skip drops buffered lines without looking at each and returns how many, so that a flood costs little more than reading
// it. It blocks only when no whole line is buffered. Before a line that begins with one of marks it stops: no lines and
// no error mean that Next returns such a line.
func (l *LineReader) Skip(marks []string) (lines int, err error) {
	last := -1
	for {
		last = bytes.LastIndexByte(l.buf[l.start:l.end], '\n')
		if last >= 0 || l.err != nil || l.end-l.start == MaxLine {
			break
		}
		l.fill()
	}
	chunk := l.buf[l.start:l.end]
	if last < 0 {
		if markAt(chunk, marks) == 0 {
			return 0, nil
		}
		if _, _, err := l.Next(); err != nil {
			return 0, err
		}
		return 1, nil
	}
	chunk = chunk[:last+1]
	if i := markAt(chunk, marks); i >= 0 {
		chunk = chunk[:i]
	}
	l.start += len(chunk)
	return bytes.Count(chunk, []byte{'\n'}), nil
}

// markAt returns the place of the first line that begins with a mark, or -1.
func markAt(chunk []byte, marks []string) int {
	first := -1
	for _, m := range marks {
		if bytes.HasPrefix(chunk, []byte(m)) {
			return 0
		}
		if i := bytes.Index(chunk, append([]byte{'\n'}, m...)); i >= 0 && (first < 0 || i+1 < first) {
			first = i + 1
		}
	}
	return first
}
