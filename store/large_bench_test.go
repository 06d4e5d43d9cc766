package store_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// largeMessages is the size of the store of BenchmarkLarge; STORE_MESSAGES sets it.
func largeMessages(b *testing.B) int {
	n := 20_000
	if v := os.Getenv("STORE_MESSAGES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil || n < 1000 {
			b.Fatalf("STORE_MESSAGES=%s is no number of messages", v)
		}
	}
	return n
}

// fillLarge makes a closed file of sessions with 200 messages each, of words as rare and as common as those of a language.
func fillLarge(b *testing.B, path string, n int) {
	b.Helper()
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	_, err = storetest.Exec(path, fmt.Sprintf(`BEGIN;
		INSERT INTO state_meta VALUES('fts_rebuild_high_water', '%[1]d'), ('fts_rebuild_progress', '0');
		WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n + 1 < %[2]d)
		INSERT INTO sessions(id, source, started_at, last_activity_at, message_count) SELECT printf('s%%07d', n), 'test', n, n, 200 FROM i;
		WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n + 1 < %[1]d)
		INSERT INTO messages(session_id, role, content, timestamp) SELECT printf('s%%07d', n / 200), iif(n %% 2, 'assistant', 'user'),
			printf('the invoice of word%%d and word%%d for the garden in place%%d, which is number%%d, says that word%%d is what word%%d was before the rain of day%%d',
				abs(random()) %% 100, abs(random()) %% 1000, abs(random()) %% 300, n, abs(random()) %% 10000, abs(random()) %% 50, n / 500), n FROM i;
		COMMIT`, n, (n+199)/200))
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLarge reports what a store of many messages costs: the start, the index, searches, and reads and the WAL under
// load. Run it with -benchtime 1x.
func BenchmarkLarge(b *testing.B) {
	n, path := largeMessages(b), b.TempDir()+"/state.db"
	fillLarge(b, path, n)
	plain := fileSize(b, path)
	for range b.N {
		start := time.Now()
		s, err := store.OpenState(context.Background(), path, store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(start))/1e6, "start-ms")
		start = time.Now()
		for built := false; !built; time.Sleep(20 * time.Millisecond) {
			x, err := s.IndexState(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			built = x.Indexed == x.Total
		}
		b.ReportMetric(float64(n)/time.Since(start).Seconds(), "indexed/s")
		searches(b, s, n)
		underLoad(b, s, n)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(plain/(1<<20), "without-index-MiB")
	b.ReportMetric(fileSize(b, path)/(1<<20), "with-index-MiB")
	b.ReportMetric(0, "ns/op")
}

func fileSize(b *testing.B, path string) float64 {
	b.Helper()
	st, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return float64(st.Size())
}

// searches asks for words that are rare, common and in between, a phrase and a part of a word.
func searches(b *testing.B, s *store.State, n int) {
	var took []time.Duration
	for i := range 100 {
		for _, q := range []store.Search{
			{Text: fmt.Sprint("number", i*n/100)}, {Text: fmt.Sprint("word", i, " place", 3*i)}, {Text: fmt.Sprintf(`"place%d which"`, i)},
			{Text: "invoice garden", Sort: "newest", Limit: 20}, {Text: fmt.Sprint("umber", i*n/100), Substring: true},
		} {
			start := time.Now()
			if _, err := s.Search(context.Background(), q); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
	}
	b.ReportMetric(quantile(took, 0.5), "search-p50-ms")
	b.ReportMetric(quantile(took, 0.99), "search-p99-ms")
}

func quantile(list []time.Duration, q float64) float64 {
	slices.Sort(list)
	return float64(list[int(q*float64(len(list)-1))]) / 1e6
}

// underLoad loads conversations of 200 messages: alone, while eight writers write, and while besides another reader reads the
// whole store again and again, which has the WAL grow. The three alternate, so that a neighbour's load meets all of them.
func underLoad(b *testing.B, s *store.State, n int) {
	load := func(d time.Duration) (took []time.Duration) {
		for i, end := 0, time.Now().Add(d); time.Now().Before(end); i++ {
			start := time.Now()
			if _, err := s.Conversation(context.Background(), fmt.Sprintf("s%07d", i*37%max(1, n/200))); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		return took
	}
	const d = time.Second
	var idle, busy, scanned []time.Duration
	write := appendSteps(b, s, 8)
	var longest atomic.Int64
	var base atomic.Int64 // writers go on with their numbers in the next round
	for range 4 {
		idle = append(idle, load(d)...)
		var wg sync.WaitGroup
		end := time.Now().Add(2 * d)
		wg.Go(func() {
			from, most := int(base.Load()), atomic.Int64{}
			drive(8, end, func(w, i int) error { most.Store(max(most.Load(), int64(i))); return write(w, from+i) })
			base.Add(most.Load() + 1)
		})
		busy = append(busy, load(d)...)
		wg.Go(func() { scan(s, end, &longest) })
		scanned = append(scanned, load(time.Until(end))...)
		wg.Wait()
	}
	b.ReportMetric(quantile(idle, 0.99), "read-idle-p99-ms")
	b.ReportMetric(quantile(busy, 0.99), "read-load-p99-ms")
	b.ReportMetric(quantile(busy, 0.99)/quantile(idle, 0.99), "load/idle")
	b.ReportMetric(quantile(busy, 0.5)/quantile(idle, 0.5), "load/idle-p50")
	b.ReportMetric(quantile(scanned, 0.99)/quantile(idle, 0.99), "scan/idle")
	b.ReportMetric(float64(longest.Load())*4096/(1<<20), "wal-most-MiB")
}

// scan reads all messages again and again and notes how long the WAL gets.
func scan(s *store.State, end time.Time, longest *atomic.Int64) {
	for time.Now().Before(end) {
		_ = s.Read(context.Background(), func(_ context.Context, count func(string) (int, error)) error {
			_, err := count("SELECT count(*) FROM messages WHERE content LIKE '%nothing of the kind%' AND id % 7 = 0")
			return err
		})
		if frames, err := s.Frames(); err == nil {
			longest.Store(max(longest.Load(), frames))
		}
	}
}
