package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A load is what one writer is to do. It crosses to the processes that write as JSON.
type load struct {
	Start int64         // Unix nanoseconds: all writers begin together
	For   time.Duration // each begins no write after that
	Pause time.Duration // between two writes; 0: none
}

// written is what one writer reached.
type written struct {
	Micros []int64 // how long each acknowledged write took
	Failed int
	Error  string // the first
}

// texts are messages of about 600 bytes with rare and common words, as of a language.
func texts(seed uint64) (list []string) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range 64 {
		var b strings.Builder
		for b.Len() < 600 {
			f := r.Float64()
			fmt.Fprintf(&b, "w%xw%x ", int(f*f*f*6000), int(f*f*f*6000))
		}
		list = append(list, b.String())
	}
	return list
}

// run writes until the time is over.
func (l load) run(seed uint64, write func(i int, text string) error) (w written) {
	list := texts(seed)
	time.Sleep(time.Until(time.Unix(0, l.Start)))
	end := time.Unix(0, l.Start).Add(l.For)
	for i := 0; time.Now().Before(end); i++ {
		begun := time.Now()
		if err := write(i, list[i%len(list)]); err != nil {
			w.Failed++
			if w.Error == "" {
				w.Error = err.Error()
			}
		} else {
			w.Micros = append(w.Micros, time.Since(begun).Microseconds())
		}
		time.Sleep(l.Pause)
	}
	return w
}

// reached is what writers reached side by side, over one round or more.
type reached struct {
	millis []float64
	failed int
	error  string
	rates  []float64 // of the rounds, in writes a second
	least  []float64 // of the rounds: the slowest writer's part of the fastest one's writes
}

// round adds what the writers of one round reached.
func (r *reached) round(all []written, d time.Duration) {
	least, most, n := 1<<62, 0, 0
	for _, w := range all {
		least, most, n = min(least, len(w.Micros)), max(most, len(w.Micros)), n+len(w.Micros)
		r.failed += w.Failed
		if r.error == "" {
			r.error = w.Error
		}
		for _, us := range w.Micros {
			r.millis = append(r.millis, float64(us)/1000)
		}
	}
	r.rates = append(r.rates, float64(n)/d.Seconds())
	r.least = append(r.least, float64(least)/float64(max(most, 1)))
}
