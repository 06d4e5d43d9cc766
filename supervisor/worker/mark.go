package worker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// MarkEnv is the environment variable that says to which worker a process belongs. Children inherit it, whatever session
// or group they make for themselves, so that orphans are known by it.
const MarkEnv = "HERMES_WORKER"

// A mark names one process of one worker of one run of a supervisor: "<home>-<run>/<worker>/<incarnation>".
type mark struct {
	home        string // of the run directory: the same for all runs of one home
	run         string // made at the start of the supervisor
	worker      string
	incarnation uint64
}

func (m mark) String() string {
	return fmt.Sprintf("%s-%s/%s/%d", m.home, m.run, m.worker, m.incarnation)
}

func parseMark(s string) (mark, bool) {
	head, rest, ok := strings.Cut(s, "/")
	home, run, ok2 := strings.Cut(head, "-")
	i := strings.LastIndexByte(rest, '/')
	if !ok || !ok2 || i < 0 {
		return mark{}, false
	}
	n, err := strconv.ParseUint(rest[i+1:], 10, 64)
	if err != nil {
		return mark{}, false
	}
	return mark{home: home, run: run, worker: rest[:i], incarnation: n}, true
}

// markOf finds the mark in an environment.
func markOf(env []string) (mark, bool) {
	for _, v := range env {
		if s, ok := strings.CutPrefix(v, MarkEnv+"="); ok {
			return parseMark(s)
		}
	}
	return mark{}, false
}

// homeOf returns the short name of a run directory.
func homeOf(runDir string) string {
	if abs, err := filepath.Abs(runDir); err == nil {
		runDir = abs
	}
	sum := sha256.Sum256([]byte(runDir))
	return hex.EncodeToString(sum[:4])
}

func newRun() string { return strings.ToLower(rand.Text()[:8]) }
