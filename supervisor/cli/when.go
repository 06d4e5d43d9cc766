package cli

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// A when is the value of a flag that names a moment: how long ago, a time of day, or a date. Its zero value is no moment.
type when struct{ text string }

// whenUsage says in the help of a flag what can be written.
const whenUsage = "1h30m, 2d, 22:51 or 2026-01-31 22:51"

func (w *when) String() string { return w.text }

// Type is what the help calls the value.
func (w *when) Type() string { return "time" }

// Set takes what was written, or says why it is no moment.
func (w *when) Set(text string) error {
	if _, err := parseWhen(text, time.Now()); err != nil {
		return err
	}
	w.text = text
	return nil
}

// at is the moment, seen from now; zero if none was named, or by 0 all there is.
func (w *when) at(now time.Time) time.Time {
	if w.text == "" || w.text == "0" {
		return time.Time{}
	}
	t, _ := parseWhen(w.text, now) // Set has read it
	return t
}

// unixSeconds are those of a moment as messages carry them, 0 for none.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

var errNoMoment = errors.New("that is no time (try " + whenUsage + ")")

// units of an age that Go's durations do not have.
var units = map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// parseWhen reads an age (1h30m, 90d, 2w, or a number of days), a time of day, which is the last such one, or a date. Times
// without a zone are of this machine's.
func parseWhen(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return lastTime(t, now), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	number, unit := text, 24*time.Hour
	if n := len(number); n > 1 && units[number[n-1]] != 0 {
		number, unit = number[:n-1], units[number[n-1]]
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || !(n*float64(unit) < float64(1<<62)) {
		return time.Time{}, errNoMoment
	}
	return now.Add(-time.Duration(n * float64(unit))), nil
}

// lastTime is the last moment at which clocks showed a time of day: today, or yesterday.
func lastTime(clock, now time.Time) time.Time {
	day := now
	for {
		t := time.Date(day.Year(), day.Month(), day.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
		if !t.After(now) {
			return t
		}
		day = day.AddDate(0, 0, -1)
	}
}
