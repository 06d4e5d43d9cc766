package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

const (
	chaosChats    = 12
	chaosMessages = 200
)

// quickRestarts keeps kills from using up the restart budget: chaos kills far more often than any budget allows.
const quickRestarts = `
supervisor:
  agent_instances: 2
  health_interval: 1s
  restart: {burst: 100000, max_delay: 100ms}
`

func numberFromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// A question is one message of the chaos test with what its answer must hold.
type question struct {
	id, text string
	effects  []string // lines that must be in the chat's effects file exactly once
}

// An answered question, as the client saw it.
type answer struct {
	question
	reply string
}

const (
	// effectUnknown is part of what the model, and through it the person, is told about a call whose effect is unknown.
	effectUnknown = "unknown"
	// parkedSays is part of the answer to a message whose turn was interrupted three times or more in a row.
	parkedSays = "times in a row without getting any further"
	// loopedSays is part of the answer to a message that was worked on at two ends of the supervisor within ten minutes.
	loopedSays = "restarted twice within ten minutes"
	// parkedPart is how many of the messages, in percent, chaos may hit three times in a row.
	parkedPart = 10
)

func TestEveryMessageIsAnsweredOnceWhileEverythingIsKilled(t *testing.T) {
	seed := uint64(numberFromEnv("HERMES_E2E_SEED", int(time.Now().UnixNano()&0x7fffffff)))
	total := numberFromEnv("HERMES_E2E_MESSAGES", chaosMessages)
	t.Logf("seed %d, %d messages (repeat with HERMES_E2E_SEED=%d HERMES_E2E_MESSAGES=%d)", seed, total, seed, total)
	s := newSystem(t, quickRestarts)
	s.start()

	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(total)*time.Second/2+2*time.Minute)
	defer cancel()
	asked, stopAsking := context.WithCancel(ctx)
	var background sync.WaitGroup
	watch := &watcher{sys: s}
	kills := &killer{sys: s, random: rand.New(rand.NewPCG(seed, 1)), count: map[string]int{}, pause: 1000}
	background.Go(func() { kills.run(asked) })
	background.Go(func() { watch.run(asked) })

	answers := askAll(ctx, t, s, seed, total)
	stopAsking()
	background.Wait()
	t.Logf("kills: %v", kills.count)

	s.waitReady(30 * time.Second)
	if code, _ := s.stop(); code != 0 {
		t.Errorf("the supervisor ended with %d", code)
	}
	watch.report(t)
	checkEffects(t, s, answers)
	checkStore(t, s, answers, func(stored, seen string) bool { return strings.TrimSpace(stored) == strings.TrimSpace(seen) })
}

// askAll sends the messages of all chats, each chat one after the other, and returns the answers by chat.
func askAll(ctx context.Context, t *testing.T, s *system, seed uint64, total int) [][]answer {
	answers := make([][]answer, chaosChats)
	var chats sync.WaitGroup
	for i := range chaosChats {
		chats.Go(func() {
			var c chat = &socketChat{sys: s, id: fmt.Sprintf("chat-%d", i)}
			if i%2 == 1 {
				c = &apiChat{sys: s}
			}
			random := rand.New(rand.NewPCG(seed, uint64(100+i)))
			for n := range total/chaosChats + 1 {
				q := makeQuestion(s, random, i, n)
				reply, err := c.ask(ctx, q.id, q.text)
				if err != nil {
					t.Errorf("chat %d: %v", i, err)
					return
				}
				answers[i] = append(answers[i], answer{q, reply})
			}
		})
	}
	chats.Wait()
	return answers
}

func effectsFile(s *system, chat int) string {
	return filepath.Join(s.home, fmt.Sprintf("effects-%d", chat))
}

func makeQuestion(s *system, random *rand.Rand, chat, n int) question {
	id := fmt.Sprintf("m-%d-%d", chat, n)
	file := effectsFile(s, chat)
	switch random.IntN(6) {
	case 0:
		return question{id: id, text: fmt.Sprintf("run: echo %s | tee -a %s", id, file), effects: []string{id}}
	case 1: // parallel calls with effects
		a, b := id+"-a", id+"-b"
		return question{id: id, text: fmt.Sprintf("run: echo %s | tee -a %s\nrun: echo %s | tee -a %s", a, file, b, file), effects: []string{a, b}}
	case 2: // a call that is likely to be hit
		return question{id: id, text: fmt.Sprintf("run: echo %s | tee -a %s; sleep 0.3", id, file), effects: []string{id}}
	case 3:
		return question{id: id, text: "run: echo " + id}
	default:
		return question{id: id, text: "tell me about " + id}
	}
}

// checkEffects holds the effects files against the answers: nothing twice, nothing missing but what the answer
// says it does not know.
func checkEffects(t *testing.T, s *system, answers [][]answer) {
	unknown, parked, total := 0, 0, 0
	for i, chat := range answers {
		b, _ := os.ReadFile(effectsFile(s, i))
		times := map[string]int{}
		for line := range strings.Lines(string(b)) {
			times[strings.TrimSpace(line)]++
		}
		for _, a := range chat {
			says := strings.Contains(a.reply, effectUnknown)
			total++
			switch {
			case strings.Contains(a.reply, parkedSays), strings.Contains(a.reply, loopedSays):
				parked++
				says = true
			case says:
				unknown++
			}
			for _, e := range a.effects {
				if times[e] > 1 {
					t.Errorf("effect %s happened %d times", e, times[e])
				}
				if times[e] == 0 && !says {
					t.Errorf("effect %s never happened, yet the answer is %q", e, a.reply)
				}
			}
			if !says && !strings.Contains(a.reply, a.id) {
				t.Errorf("the answer to %s does not answer it: %q", a.id, a.reply)
			}
		}
	}
	t.Logf("of %d answers %d told of an unknown effect, %d of a turn that was interrupted too often", total, unknown, parked)
	if parked*100 > total*parkedPart {
		t.Errorf("%d of %d turns were given up", parked, total)
	}
}

// checkStore opens the databases of the stopped system and compares them with what the clients saw; same says whether
// a client that was answered with the one sees the other.
func checkStore(t *testing.T, s *system, answers [][]answer, same func(stored, seen string) bool) {
	t.Helper()
	db := openDatabase(t, filepath.Join(s.home, "state.db"))
	for _, name := range []string{"state.db", "kanban.db"} {
		var verdict string
		if err := openDatabase(t, filepath.Join(s.home, name)).QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
			t.Errorf("integrity of %s: %s %v", name, verdict, err)
		}
	}
	total := 0
	for _, chat := range answers {
		total += len(chat)
		for _, a := range chat {
			checkTurn(t, db, a, same)
		}
		checkOrder(t, db, chat)
	}
	var turns, open int
	if err := db.QueryRow("SELECT count(*), count(*) FILTER (WHERE state != 'done') FROM hs_turns").Scan(&turns, &open); err != nil {
		t.Fatal(err)
	}
	if turns != total || open != 0 {
		t.Errorf("%d turns for %d messages, %d of them not done", turns, total, open)
	}
}

func openDatabase(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// checkTurn sees that a message, which its text tells from all others, has one turn, one row of its own, and one final reply, the one that the client got.
func checkTurn(t *testing.T, db *sql.DB, a answer, same func(stored, seen string) bool) {
	t.Helper()
	var turns, users, finals int
	var final string
	err := db.QueryRow(`SELECT count(*), coalesce(max(t.final), '') FROM hs_turns t JOIN hs_inbox i ON i.turn_id = t.id WHERE i.text = ?`, a.text).Scan(&turns, &final)
	if err != nil {
		t.Fatal(err)
	}
	err = db.QueryRow(`SELECT count(*) FILTER (WHERE m.role = 'user'),
			count(*) FILTER (WHERE m.role = 'assistant' AND m.tool_calls IS NULL)
		FROM messages m JOIN hs_steps s ON s.message_id = m.id JOIN hs_inbox i ON i.turn_id = s.turn_id WHERE i.text = ?`, a.text).Scan(&users, &finals)
	if err != nil {
		t.Fatal(err)
	}
	if turns != 1 || users != 1 || finals != 1 {
		t.Errorf("message %s: %d turns, %d rows of its own, %d final replies", a.id, turns, users, finals)
	}
	if !same(final, a.reply) {
		t.Errorf("message %s: stored %q, the client got %q", a.id, final, a.reply)
	}
}

// checkOrder sees that the user rows of a chat's session stand in the order in which they were sent, each answered
// before the next.
func checkOrder(t *testing.T, db *sql.DB, chat []answer) {
	t.Helper()
	if len(chat) == 0 {
		return
	}
	rows, err := db.Query(`SELECT role, coalesce(content, ''), tool_calls IS NOT NULL FROM messages
		WHERE session_id = (SELECT session_id FROM hs_inbox WHERE text = ?) ORDER BY id`, chat[0].text)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	next, owed := 0, false
	for rows.Next() {
		var role, content string
		var calls bool
		if err := rows.Scan(&role, &content, &calls); err != nil {
			t.Fatal(err)
		}
		switch {
		case role == "user":
			if next >= len(chat) || content != chat[next].text || owed {
				t.Errorf("row %q is not the next message (%d of its chat, answer owed %v)", content, next, owed)
				return
			}
			next, owed = next+1, true
		case role == "assistant" && !calls:
			owed = false
		}
	}
	if next != len(chat) || owed {
		t.Errorf("%d of %d messages in their session, answer owed %v", next, len(chat), owed)
	}
}

// killer kills a random process of the system again and again, and starts the supervisor anew as systemd would.
type killer struct {
	sys    *system
	random *rand.Rand
	count  map[string]int
	pause  int // between two kills, about, in milliseconds
	// done, if it is given, says how much was answered. Kills then follow what is done and not the clock alone: on a
	// slow machine each turn would be hit again and again.
	done func() int
	left []int // victims of this round: in each round everybody is one
}

const (
	// perKill is how much is answered between two kills, unless that takes killPatience.
	perKill      = 6
	killPatience = 15 * time.Second
)

// next chooses a victim of n.
func (k *killer) next(n int) int {
	if len(k.left) == 0 {
		k.left = k.random.Perm(n)
	}
	victim := k.left[0]
	k.left = k.left[1:]
	return min(victim, n-1)
}

// rest waits until something was done since the last kill.
func (k *killer) rest(ctx context.Context, before int) {
	for deadline := time.Now().Add(killPatience); k.done != nil && k.done() < before+perKill && time.Now().Before(deadline) && ctx.Err() == nil; {
		time.Sleep(50 * time.Millisecond)
	}
}

func (k *killer) run(ctx context.Context) {
	for before := 0; ; {
		k.rest(ctx, before)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(k.pause/5+k.random.IntN(k.pause)) * time.Millisecond):
		}
		st, err := k.sys.status()
		if err != nil || st.Supervisor.State != "ready" {
			continue // a system that is killed before it has started proves nothing
		}
		if k.done != nil {
			before = k.done()
		}
		victim := k.next(len(st.Workers) + 1)
		if victim == len(st.Workers) {
			k.count["supervisor"]++
			k.sys.kill()
			k.sys.spawn()
			continue
		}
		if w := st.Workers[victim]; w.Pid > 0 && w.State == "ready" {
			k.count[w.Role]++
			_ = killPID(int(w.Pid))
		}
	}
}

// watcher samples /proc during the chaos: who holds database files, and what stays a zombie.
type watcher struct {
	sys     *system
	samples int
	holders map[string]int
	zombies map[string]time.Time // when each was first seen
	late    map[string]time.Duration
}

func (w *watcher) run(ctx context.Context) {
	w.holders, w.zombies, w.late = map[string]int{}, map[string]time.Time{}, map[string]time.Duration{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		cmd := w.sys.process()
		if cmd == nil {
			continue
		}
		pid := cmd.Process.Pid
		held := databaseHolders(w.sys.home, pid)
		if w.sys.process() != cmd {
			continue // another supervisor started meanwhile, which holds them by right
		}
		w.samples++
		for _, h := range held {
			w.holders[h]++
		}
		for _, p := range descendants(pid) {
			if p.state != "Z" {
				continue
			}
			name := fmt.Sprintf("%d %s", p.pid, p.command)
			if _, seen := w.zombies[name]; !seen {
				w.zombies[name] = time.Now()
			}
			if age := time.Since(w.zombies[name]); age > zombieAge {
				w.late[name] = age
			}
		}
	}
}

// zombieAge is how long a dead process may be waited for. One that has just been killed is not reaped yet, the orphans of
// a killed worker are looked for once a second, and a busy machine may hold up the supervisor itself.
const zombieAge = 10 * time.Second

func (w *watcher) report(t *testing.T) {
	t.Helper()
	if w.samples < 10 {
		t.Errorf("only %d samples were taken", w.samples)
	}
	for h, n := range w.holders {
		if n > 1 { // a child between fork and exec still has its parent's descriptors for an instant
			t.Errorf("a process other than the supervisor held a database in %d samples: %s", n, h)
		}
	}
	for z, age := range w.late {
		t.Errorf("%s was a zombie for %v", z, age)
	}
}
