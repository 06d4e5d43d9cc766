package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// A bundle is a database with its WAL, by suffix.
type bundle map[string][]byte

// sound are the bundles that are mutilated: files of Hermes, and one of ours whose last messages are in its WAL alone.
var sound = sync.OnceValue(func() []bundle {
	var list []bundle
	for _, name := range []string{"state-schema-v8.db", "hermes-home-2026-07/state.db"} {
		b, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)))
		if err != nil {
			panic(err)
		}
		list = append(list, bundle{"": b})
	}
	return append(list, ourBundle())
})

// ourBundle copies the files of a store that is open.
func ourBundle() bundle {
	dir, err := os.MkdirTemp("", "hs-bundle-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "state.db")
	b := bundle{}
	err = onState(context.Background(), dir, func(s *store.State) error {
		for i := range 30 {
			if _, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: fmt.Sprint(i % 3), MessageID: fmt.Sprint(i), Text: "hello"}); err != nil {
				return err
			}
		}
		for _, suffix := range []string{"", "-wal"} {
			var err error
			if b[suffix], err = os.ReadFile(path + suffix); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return b
}

// A harm is 8 bytes: what is done, how, and where.
const harmSize = 8

const (
	zeroPage = iota
	garbagePage
	swapPages
	copyPage
	overwrite
	headerField
	cut
	grow
	cutWAL
	zeroWAL
	garbageWAL
	foreignWAL
	foreignFile
	harms
)

// harm does one of them. Every choice that the bytes make is a valid one.
func (b bundle) harm(h []byte) {
	what, how := h[0]%harms, h[1]
	where := int(binary.BigEndian.Uint32(h[2:]))
	other := int(binary.BigEndian.Uint16(h[6:]))
	random := rand.NewChaCha8([32]byte(append(bytes.Clone(h), make([]byte, 24)...)))
	page := func(s []byte, n int) []byte {
		if len(s) < 4096 {
			return s
		}
		at := n % (len(s) / 4096) * 4096
		return s[at : at+4096]
	}
	main, wal := b[""], b["-wal"]
	switch what {
	case zeroPage:
		clear(page(main, where))
	case garbagePage:
		_, _ = random.Read(page(main, where))
	case swapPages:
		x, y := page(main, where), page(main, other)
		kept := bytes.Clone(x)
		copy(x, y)
		copy(y, kept)
	case copyPage:
		copy(page(main, where), page(main, other))
	case overwrite:
		if len(main) > 0 {
			at := where % len(main)
			_, _ = random.Read(main[at:min(at+1+int(how), len(main))])
		}
	case headerField:
		fields := []int{0, 16, 18, 19, 20, 21, 24, 28, 32, 40, 44, 52, 56, 60, 68, 92, 96}
		if at := fields[int(how)%len(fields)]; at+4 <= len(main) {
			binary.BigEndian.PutUint16(main[at:], uint16(other))
		}
	case cut:
		b[""] = main[:where%(len(main)+1)]
	case grow:
		more := make([]byte, where%(64<<10))
		_, _ = random.Read(more)
		b[""] = append(main, more...)
	case cutWAL:
		b["-wal"] = wal[:where%(len(wal)+1)]
	case zeroWAL:
		clear(page(wal, where))
	case garbageWAL:
		_, _ = random.Read(page(wal, where))
	case foreignWAL:
		b["-wal"] = bytes.Clone(sound()[2]["-wal"])
	case foreignFile:
		b[""] = bytes.Repeat([]byte("Dear diary, "), where%1000)
	}
}

// mutilated is a sound bundle after harms.
func mutilated(base byte, list []byte) bundle {
	b := bundle{}
	for suffix, content := range sound()[int(base)%len(sound())] {
		b[suffix] = bytes.Clone(content)
	}
	for ; len(list) >= harmSize; list = list[harmSize:] {
		b.harm(list[:harmSize])
	}
	return b
}

// known are the errors with which a mutilated file may be refused.
var known = []error{store.ErrFailed, store.ErrTooNew, store.ErrInvalid, store.ErrNothingSaved, store.ErrPartial}

func isKnown(err error) bool {
	for _, k := range known {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

// endure opens a mutilated bundle and recovers it. Nothing may panic, hang, or change what a recovery reads; what is refused
// has a name; and what is saved is sound.
func endure(t *testing.T, b bundle) {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source.db")
	for suffix, content := range b {
		if err := errors.Join(os.WriteFile(source+suffix, content, 0o600), os.WriteFile(filepath.Join(dir, "state.db")+suffix, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	output := filepath.Join(dir, "saved.db")
	r, err := store.Recover(ctx, store.RecoverOptions{Source: source, Output: output, AllowPartial: true})
	switch {
	case err != nil && !isKnown(err):
		t.Errorf("recover: %v", err)
	case err == nil && !r.Verified:
		t.Errorf("recovered and not verified: %+v", r)
	case err == nil:
		storetest.StateAt(t, output, store.Options{Readers: 1})
	}
	for suffix, content := range b {
		if now, err := os.ReadFile(source + suffix); err != nil || !bytes.Equal(now, content) {
			t.Errorf("source.db%s was changed: %v", suffix, err)
		}
	}
	s, err := store.OpenState(ctx, filepath.Join(dir, "state.db"), store.Options{Readers: 1})
	if err != nil {
		if !isKnown(err) {
			t.Errorf("open: %v", err)
		}
		return
	}
	use(t, s)
	if h := s.Health(); h.State != "ok" && (h.Condition == "" || h.Advice == "") {
		t.Errorf("health is %+v", h)
	}
	_ = s.Close()
}

// TestMutilatedFilesAreEndured mutilates files at random. STORE_MUTILATIONS sets how many, STORE_SEED which.
func TestMutilatedFilesAreEndured(t *testing.T) {
	number, seed := 60, rand.Uint64()
	if testing.Short() {
		number = 20
	}
	for name, to := range map[string]any{"STORE_MUTILATIONS": &number, "STORE_SEED": &seed} {
		if v := os.Getenv(name); v != "" {
			if _, err := fmt.Sscan(v, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("STORE_SEED=%d", seed)
	for i := range number {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		list := make([]byte, harmSize*(1+random.IntN(3)))
		for j := range list {
			list[j] = byte(random.Uint32())
		}
		base := byte(random.IntN(3))
		t.Run(fmt.Sprintf("%d-%x", base, list), func(t *testing.T) {
			t.Parallel()
			endure(t, mutilated(base, list))
		})
	}
}

// FuzzMutilated is the same, guided.
func FuzzMutilated(f *testing.F) {
	for what := range byte(harms) {
		for base := range byte(3) {
			f.Add(base, []byte{what, 1, 0, 0, 0, 3, 0, 5})
			f.Add(base, []byte{what, 7, 0, 0, 0x12, 0x34, 0, 2, overwrite, 3, 0, 0, 0, 110, 0, 1})
		}
	}
	f.Add(byte(0), []byte{headerField, 1, 0, 0, 0, 0, 0x02, 0x00}) // the page size
	f.Fuzz(func(t *testing.T, base byte, list []byte) {
		if len(list) > 8*harmSize {
			t.Skip()
		}
		endure(t, mutilated(base, list))
	})
}
