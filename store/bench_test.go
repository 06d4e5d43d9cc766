package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func init() { children["commit alone"] = commitAlone }

// The unit of work is one message of 600 bytes and the counters of its session. BenchmarkWriters does it through
// AppendSteps, which keeps the turn's books as well; the processes and BenchmarkRequests make these two statements.
const (
	insertMessage = "INSERT INTO messages(session_id, role, content, timestamp) VALUES(?, 'assistant', ?, ?)"
	countMessage  = "UPDATE sessions SET message_count = message_count + 1, last_activity_at = ? WHERE id = ?"
)

var message = strings.Repeat("a word or two ", 43)

// measured is what one way of writing reached.
type measured struct {
	Latencies []time.Duration
	Failed    int
	Least     int // writes of the writer that got the fewest
}

func (m *measured) add(n measured) {
	m.Latencies = append(m.Latencies, n.Latencies...)
	m.Failed += n.Failed
	m.Least = min(m.Least, n.Least)
}

func (m *measured) report(b *testing.B, name string, took time.Duration) (rate float64) {
	slices.Sort(m.Latencies)
	at := func(q float64) float64 {
		if len(m.Latencies) == 0 {
			return 0
		}
		return float64(m.Latencies[int(q*float64(len(m.Latencies)-1))]) / 1e6
	}
	rate = float64(len(m.Latencies)) / took.Seconds()
	b.ReportMetric(rate, name+"-req/s")
	b.ReportMetric(at(0.5), name+"-p50-ms")
	b.ReportMetric(at(0.99), name+"-p99-ms")
	b.ReportMetric(at(1), name+"-max-ms")
	b.ReportMetric(float64(m.Least), name+"-least")
	b.ReportMetric(float64(m.Failed), name+"-failed")
	return rate
}

// drive runs n writers side by side until the end and adds up what they reached.
func drive(n int, end time.Time, write func(writer, i int) error) (m measured) {
	m.Least = 1 << 30
	var wg sync.WaitGroup
	var mu sync.Mutex
	for w := range n {
		wg.Go(func() {
			var own measured
			for i := 0; time.Now().Before(end); i++ {
				start := time.Now()
				if write(w, i) != nil {
					own.Failed++
					continue
				}
				own.Latencies = append(own.Latencies, time.Since(start))
			}
			own.Least = len(own.Latencies)
			mu.Lock()
			defer mu.Unlock()
			m.add(own)
		})
	}
	wg.Wait()
	return m
}

func openBench(b *testing.B) (*store.State, string) {
	b.Helper()
	path := b.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s, path
}

// turns leases a turn for each of n chats.
func turns(b *testing.B, s *store.State, n int) (list []store.Turn) {
	b.Helper()
	for i := range n {
		a, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: strconv.Itoa(i), MessageID: fmt.Sprint(time.Now().UnixNano())})
		if err != nil {
			b.Fatal(err)
		}
		u, err := s.Lease(context.Background(), a.TurnID, "agent-1")
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, u)
	}
	return list
}

func seconds() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

// appendSteps is the unit of work through the API.
func appendSteps(b *testing.B, s *store.State, n int) func(writer, i int) error {
	list := turns(b, s, n)
	return func(w, i int) error {
		u := list[w]
		_, err := s.AppendSteps(context.Background(), u.ID, u.Fence, []store.Message{{Seq: uint32(i + 1), Role: "assistant", Content: message}}, "")
		return err
	}
}

// requests is the unit of work as the processes do it.
func requests(b *testing.B, s *store.State, n int) func(writer, i int) error {
	list := turns(b, s, n)
	return func(w, _ int) error {
		return s.Request(context.Background(), func(exec execFunc) error {
			now := seconds()
			return errors.Join(exec(insertMessage, list[w].SessionID, message, now), exec(countMessage, now, list[w].SessionID))
		})
	}
}

func BenchmarkWriters(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s, _ := openBench(b)
			write := appendSteps(b, s, n)
			var next sync.Mutex
			left := b.N
			take := func() bool {
				next.Lock()
				defer next.Unlock()
				left--
				return left >= 0
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range n {
				wg.Go(func() {
					for i := 0; take(); i++ {
						if err := write(w, i); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
		})
	}
}

// commitAlone is one process of several that share a file without a supervisor: its own connection, BEGIN IMMEDIATE,
// a busy timeout of 1 s, 15 tries with 20 to 150 ms between them.
func commitAlone(args []string) error {
	db, err := sql.Open("sqlite3", "file:"+args[0]+"?_busy_timeout=1000&_synchronous=FULL&_txlock=immediate&_stmt_cache_size=64")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if err := db.Ping(); err != nil {
		return err
	}
	fmt.Println("ready")
	var text string
	if _, err := fmt.Scan(&text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	session, end := args[1], time.Now().Add(d)
	m := drive(1, end, func(int, int) error {
		for range 15 {
			err := commitOnce(db, session)
			var e sqlite3.Error
			if !errors.As(err, &e) || e.Code != sqlite3.ErrBusy && e.Code != sqlite3.ErrLocked {
				return err
			}
			time.Sleep(20*time.Millisecond + rand.N(130*time.Millisecond))
		}
		return errors.New("database is locked")
	})
	return json.NewEncoder(os.Stdout).Encode(m)
}

func commitOnce(db *sql.DB, session string) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	now := seconds()
	if _, err := tx.Exec(insertMessage, session, message, now); err != nil {
		return err
	}
	if _, err := tx.Exec(countMessage, now, session); err != nil {
		return err
	}
	return tx.Commit()
}

// processes lets n processes write to a new file for that long.
func processes(b *testing.B, n int, d time.Duration) measured {
	b.Helper()
	s, path := openBench(b)
	list := turns(b, s, n)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	var all []*child
	for i := range n {
		all = append(all, startChild(b, "commit alone", path, list[i].SessionID))
	}
	for _, c := range all {
		c.expect("ready")
	}
	for _, c := range all {
		_, _ = fmt.Fprintln(c.stdin, d)
	}
	m := measured{Least: 1 << 30}
	for _, c := range all {
		var own measured
		if err := json.Unmarshal([]byte(c.line()), &own); err != nil {
			b.Fatal(err, c.errs.String())
		}
		if err := c.wait(); err != nil {
			b.Fatal(err, c.errs.String())
		}
		m.add(own)
	}
	return m
}

// BenchmarkAgainstProcesses compares the store with processes that commit each alone, in rounds that alternate so that
// a neighbour's load meets both. Run it with -benchtime 1x; STORE_ROUNDS sets the number of rounds.
func BenchmarkAgainstProcesses(b *testing.B) {
	const d = 2 * time.Second
	rounds := 3
	if v := os.Getenv("STORE_ROUNDS"); v != "" {
		rounds, _ = strconv.Atoi(v)
	}
	for _, n := range []int{1, 8, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for range b.N {
				compare(b, n, rounds, d)
			}
		})
	}
}

func compare(b *testing.B, n, rounds int, d time.Duration) {
	alone, plain, whole := measured{Least: 1 << 30}, measured{Least: 1 << 30}, measured{Least: 1 << 30}
	for range rounds {
		alone.add(processes(b, n, d))
		s, _ := openBench(b)
		write := requests(b, s, n)
		plain.add(drive(n, time.Now().Add(d), write))
		write = appendSteps(b, s, n)
		whole.add(drive(n, time.Now().Add(d), write))
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	took := d * time.Duration(rounds)
	theirs := alone.report(b, "processes", took)
	ours := plain.report(b, "store", took)
	steps := whole.report(b, "steps", took)
	b.ReportMetric(ours/theirs, "store/processes")
	b.ReportMetric(steps/theirs, "steps/processes")
	b.ReportMetric(0, "ns/op")
}
