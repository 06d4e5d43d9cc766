package sample

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"sync"
)

// listsChildren says whether the kernel keeps a list of the children of each thread (CONFIG_PROC_CHILDREN), so that the
// processes below one are found without a look at all others.
func (p Proc) listsChildren() bool {
	return p.kernel() && kernelLists(string(p))
}

var systemLists = sync.OnceValue(func() bool { return kernelLists(string(System)) })

func kernelLists(root string) bool {
	self := strconv.Itoa(os.Getpid())
	_, err := os.Stat(root + "/" + self + "/task/" + self + "/children")
	return err == nil
}

// Children returns the pids whose parent is pid; ok is false where the kernel keeps no lists of them. A list that changes while
// it is read may lack one, so it is read twice.
func (p Proc) Children(pid int) (pids []int, ok bool) {
	if p != System || !p.kernel() || !systemLists() {
		return nil, false
	}
	pids = append(p.children(pid), p.children(pid)...)
	slices.Sort(pids)
	return slices.Compact(pids), true
}

// Below returns the processes below pid, by the kernel's lists of children.
func (p Proc) Below(pid int) []Stat { return p.offspring(pid, nil) }

// children returns the pids whose parent is pid. More than about a thousand a thread are cut.
func (p Proc) children(pid int) []int {
	threads, err := entries(p.path(pid, "task"))
	if err != nil {
		return nil
	}
	var out []int
	for _, t := range threads {
		data, release, err := p.read(pid, "task/"+t+"/children")
		if err != nil {
			continue // a thread that has ended
		}
		for f := range bytes.FieldsSeq(data) {
			out = append(out, int(number(f)))
		}
		release()
	}
	return out
}

// offspring finds the processes below pid, and those of known that still live although their parent does not: they were
// made below it.
func (p Proc) offspring(pid int, known []Stat) []Stat {
	seen := map[int]bool{pid: true}
	var out []Stat
	walk := func(from int) {
		queue := []int{from}
		for len(queue) > 0 {
			next := queue[0]
			queue = queue[1:]
			for _, child := range p.children(next) {
				s, err := p.Stat(child)
				if err != nil || seen[child] {
					continue
				}
				seen[child] = true
				out = append(out, s)
				queue = append(queue, child)
			}
		}
	}
	walk(pid)
	for _, k := range known {
		if s, err := p.Stat(k.PID); err == nil && s.Start == k.Start && !s.Zombie() && !seen[k.PID] {
			seen[k.PID] = true
			out = append(out, s)
			walk(k.PID)
		}
	}
	return out
}

// leads says whether a number is that of a process and not of a thread of one, which the kernel shows alike.
func (p Proc) leads(pid int) bool {
	data, release, err := p.read(pid, "status")
	if err != nil {
		return false
	}
	defer release()
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			return int(number(bytes.TrimSpace(rest))) == pid
		}
	}
	return false
}
