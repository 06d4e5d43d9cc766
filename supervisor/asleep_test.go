package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestASleepOfTheMachineIsToldAsSuch(t *testing.T) {
	var told []store.Event
	w := &sleepWatch{record: func(e store.Event) { told = append(told, e) }}
	now := time.Now()
	w.beat(now)
	w.beat(now.Add(time.Second))
	w.passed(now, time.Second, time.Second)
	w.passed(now, 40*time.Second, 39*time.Second) // a busy machine, which was late
	w.passed(now, -time.Hour, time.Second)        // the clock was set back
	if len(told) > 0 {
		t.Fatalf("%+v", told)
	}
	w.passed(now, 5*time.Hour+time.Second, time.Second)
	if len(told) != 1 || !strings.Contains(told[0].Message, "slept for 5h0m0s") {
		t.Errorf("%+v", told)
	}
}
