package logs

import "slices"

// A ring keeps the newest lines within ringBytes.
type ring struct {
	lines []Line
	first int
	bytes int
}

func (r *ring) add(l Line) {
	r.lines = append(r.lines, l)
	r.bytes += l.size()
	for r.bytes > ringBytes && r.first < len(r.lines)-1 {
		r.bytes -= r.lines[r.first].size()
		r.lines[r.first] = Line{} // let go of its texts
		r.first++
	}
	// Move down when half is empty, so that adding stays cheap on average.
	if r.first > len(r.lines)/2 {
		n := copy(r.lines, r.lines[r.first:])
		clear(r.lines[n:])
		r.lines, r.first = r.lines[:n], 0
	}
}

func (r *ring) newest(n int) []Line {
	return slices.Clone(r.lines[max(r.first, len(r.lines)-max(n, 0)):])
}

// newestOf merges tails, each in order of arrival, into one and keeps its last n.
func newestOf(tails [][]Line, n int) []Line {
	all := slices.Concat(tails...)
	slices.SortFunc(all, func(a, b Line) int { return int(int64(a.seq) - int64(b.seq)) })
	return all[max(0, len(all)-n):]
}
