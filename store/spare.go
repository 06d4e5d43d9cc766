package store

import "os"

// spareCount is what a commit with a rollback journal opens: the journal, and the folder to make its name durable; and
// one more.
const spareCount = 3

// spares are descriptors that are kept for the moment in which a commit needs some: a process that has no free ones left
// still writes. With a WAL none are needed, all files are open from the start. Between let and take somebody else may
// get them; then that commit fails, is not answered as written, and the next one has its own chance.
type spares struct{ files []*os.File }

// take opens what is missing. Without a free descriptor it is tried again after the next commit.
func (s *spares) take() {
	for len(s.files) < spareCount {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		s.files = append(s.files, f)
	}
}

// let closes them.
func (s *spares) let() {
	for _, f := range s.files {
		_ = f.Close()
	}
	s.files = s.files[:0]
}
