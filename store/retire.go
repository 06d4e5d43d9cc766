package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"
)

// A retired generation is a WAL (with its index, -shm) that was deleted or replaced at its path while it was in use. What
// was committed into it and not yet copied is nowhere else, so it is captured before anything is closed: a folder beside
// the database, in the format of Hermes, which is evidence and never merged by itself.

const (
	retiredMark  = ".retired-wal-"
	captureChunk = 8 << 20
	// captureWhole is the size up to which the main file is captured as well; beyond it only its header.
	captureWhole = 512 << 20
	captureRoom  = 64 << 20 // left free on the disk by a capture
	stampFormat  = "20060102-150405"
)

// A capturedFile is one file of a manifest.
type capturedFile struct {
	Bytes    int64     `json:"bytes"`
	File     string    `json:"file"`
	Identity [2]uint64 `json:"identity"`
	SHA256   string    `json:"sha256"`
}

type capturedMain struct {
	capturedFile
	Header fileHeader `json:"header"`
	Mode   string     `json:"mode"` // copied | header_only
	Size   int64      `json:"size"`
}

// A manifest says what a capture holds. Its fields are those of Hermes.
type manifest struct {
	CapturedAt string               `json:"captured_at"`
	Database   string               `json:"database"`
	Main       capturedMain         `json:"main"`
	Note       string               `json:"note"`
	AtPath     map[string][2]uint64 `json:"path_generation_at_capture"`
	PID        int                  `json:"pid"`
	Program    string               `json:"program"`
	SHM        *capturedFile        `json:"shm"`
	SQLite     string               `json:"sqlite"`
	Trigger    string               `json:"trigger"`
	Version    int                  `json:"version"`
	WAL        capturedFile         `json:"wal"`
}

// capture copies the generation that the guard holds to a folder beside the database and returns its path. It reads
// through descriptors that stay open: opening and closing the files would drop SQLite's locks on them. alive is called
// between chunks.
func (g *guard) capture(now time.Time, trigger string, alive func()) (dir string, err error) {
	dir = freeName(g.path+retiredMark+now.UTC().Format(stampFormat)+fmt.Sprintf("-%d", os.Getpid()), "")
	part := dir + ".partial"
	if err := os.Mkdir(part, 0o700); err != nil {
		return "", fmt.Errorf("capture the retired WAL: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(part)
			err = fmt.Errorf("capture the retired WAL: %w", err)
		}
	}()
	m, err := g.captureFiles(part, alive)
	if err != nil {
		return "", err
	}
	_, _, id := sqlite3.Version()
	m.CapturedAt, m.Trigger, m.SQLite = now.UTC().Format(time.RFC3339), trigger, id
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", err
	}
	if err := writeSynced(filepath.Join(part, "manifest.json"), append(text, '\n')); err != nil {
		return "", err
	}
	if err := errors.Join(syncFile(part), os.Rename(part, dir)); err != nil {
		return "", err
	}
	return dir, syncFile(filepath.Dir(dir))
}

func (g *guard) captureFiles(dir string, alive func()) (m manifest, err error) {
	m = manifest{
		Database: g.path, PID: os.Getpid(), Program: "hermes-supervisor", Version: 1, AtPath: map[string][2]uint64{},
		Note: "evidence: never merged by itself; look at it with: hermes-supervisor sessions recover --source " +
			filepath.Join(dir[:len(dir)-len(".partial")], filepath.Base(g.path)) + " --inspect-only",
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if id, err := at(g.path + suffix); err == nil {
			m.AtPath[suffix] = [2]uint64{id.dev, id.ino}
		}
	}
	// The descriptor of the WAL cannot be read. Another one on the same file can, and SQLite has no locks on a WAL that
	// closing it would drop.
	wal, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", g.wal))
	if err != nil {
		return m, err
	}
	defer wal.Close()
	base := filepath.Base(g.path)
	if m.WAL, err = copyOpen(wal, -1, filepath.Join(dir, base+"-wal"), alive); err != nil {
		return m, err
	}
	shm, err := copyOpen(g.shm, -1, filepath.Join(dir, base+"-shm"), alive)
	if err != nil {
		return m, err
	}
	m.SHM = &shm
	return m, g.captureMain(dir, &m.Main, alive)
}

func (g *guard) captureMain(dir string, m *capturedMain, alive func()) error {
	st, err := g.main.Stat()
	if err != nil {
		return err
	}
	m.Size = st.Size()
	if m.Header, err = g.header(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	free, err := freeSpace(g.path)
	if err != nil {
		return err
	}
	name, limit := filepath.Base(g.path), int64(-1)
	m.Mode = "copied"
	if m.Size > captureWhole || m.Size+captureRoom > free {
		m.Mode, name, limit = "header_only", name+".header", headerSize
	}
	m.capturedFile, err = copyOpen(g.main, limit, filepath.Join(dir, name), alive)
	return err
}

// copyOpen copies an open file, or its first limit bytes, by position.
func copyOpen(from *os.File, limit int64, to string, alive func()) (c capturedFile, err error) {
	id, err := identify(int(from.Fd()))
	if err != nil {
		return c, err
	}
	st, err := from.Stat()
	if err != nil {
		return c, err
	}
	size := st.Size()
	if limit >= 0 {
		size = min(size, limit)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sum := sha256.New()
	for at := int64(0); at < size; at += captureChunk {
		alive()
		part := io.NewSectionReader(from, at, min(captureChunk, size-at))
		n, err := io.Copy(io.MultiWriter(out, sum), part)
		if err != nil {
			return c, err
		}
		if n != part.Size() {
			return c, fmt.Errorf("%s: %w", to, io.ErrUnexpectedEOF)
		}
	}
	return capturedFile{Bytes: size, File: filepath.Base(to), Identity: [2]uint64{id.dev, id.ino}, SHA256: hex.EncodeToString(sum.Sum(nil))}, out.Sync()
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// freeName returns base+suffix, or the first of base-1, base-2 … +suffix that does not exist.
func freeName(base, suffix string) string {
	name := base + suffix
	for n := 1; exists(name) || exists(name+".partial"); n++ {
		name = fmt.Sprintf("%s-%d%s", base, n, suffix)
	}
	return name
}

const (
	headerSize  = 100
	headerMagic = "SQLite format 3\x00"
)

// A fileHeader is the part of SQLite's header that tells one file from another.
type fileHeader struct {
	ApplicationID uint32 `json:"application_id"`
	ChangeCounter uint32 `json:"change_counter"`
	PageCount     uint32 `json:"page_count"`
	PageSize      uint32 `json:"page_size"`
	UserVersion   uint32 `json:"user_version"`
	Valid         bool   `json:"valid"`
	ValidFor      uint32 `json:"version_valid_for"`
}

// parseHeader reads the first bytes of a file; fewer than a header's are not valid.
func parseHeader(b []byte) (h fileHeader) {
	if len(b) < headerSize || string(b[:len(headerMagic)]) != headerMagic {
		return h
	}
	number := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	h = fileHeader{Valid: true, ChangeCounter: number(24), PageCount: number(28), UserVersion: number(60), ApplicationID: number(68), ValidFor: number(92)}
	if h.PageSize = uint32(binary.BigEndian.Uint16(b[16:])); h.PageSize == 1 {
		h.PageSize = 65536
	}
	return h
}

func (g *guard) header() (fileHeader, error) {
	b := make([]byte, headerSize)
	n, err := g.main.ReadAt(b, 0)
	return parseHeader(b[:n]), err
}

// A stamp tells whether a file was written. Its times change by whole ticks of the kernel, a few milliseconds.
type stamp struct {
	size    int64
	changed unix.Timespec
}

func (g *guard) stamp() (stamp, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(g.main.Fd()), &st)
	return stamp{st.Size, st.Mtim}, err
}
