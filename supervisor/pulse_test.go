package supervisor

import (
	"testing"
	"time"
)

func TestAHomeNotesOnceAMinuteThatItsSupervisorLives(t *testing.T) {
	var noted []time.Time
	p := &pulse{note: func(at time.Time) { noted = append(noted, at) }}
	start := time.Date(2026, 3, 1, 22, 51, 0, 0, time.UTC)
	for s := range 121 {
		p.beat(start.Add(time.Duration(s) * time.Second))
	}
	if len(noted) != 3 || noted[0] != start || noted[2] != start.Add(2*time.Minute) {
		t.Errorf("noted at %v", noted)
	}
}
