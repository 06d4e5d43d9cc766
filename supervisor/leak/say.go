package leak

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// amount writes a value with its unit.
func amount(unit string, v float64) string {
	if unit != profiles[AnonymousBytes].unit {
		if v == 1 {
			unit = strings.TrimSuffix(unit, "s")
		}
		return number(v) + " " + unit
	}
	for _, u := range []struct {
		name string
		size float64
	}{{"GiB", gib}, {"MiB", mib}, {"KiB", 1 << 10}} {
		if math.Abs(v) >= u.size {
			return number(v/u.size) + " " + u.name
		}
	}
	return number(v) + " B"
}

// fromTo and between write two values, and the unit once where it is one word for both.
func fromTo(unit string, a, b float64) string { return "from " + pair(unit, a, "to", b) }

func between(unit string, a, b float64) string {
	if a == b {
		return amount(unit, a)
	}
	return "between " + pair(unit, a, "and", b)
}

func pair(unit string, a float64, word string, b float64) string {
	if unit == profiles[AnonymousBytes].unit {
		return amount(unit, a) + " " + word + " " + amount(unit, b)
	}
	return number(a) + " " + word + " " + amount(unit, b)
}

// number writes three digits where they matter: 1.25, 12.5, 125, 12500.
func number(v float64) string {
	digits := 2
	switch a := math.Abs(v); {
	case a == math.Trunc(a) || a >= 100:
		digits = 0
	case a >= 10:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// rate writes a growth per second in the time unit in which it is at least one.
func rate(unit string, perSecond float64) string {
	whole := 1.0
	if unit == profiles[AnonymousBytes].unit {
		whole = mib
	}
	for _, u := range []struct {
		name    string
		seconds float64
	}{{"a second", 1}, {"a minute", 60}, {"an hour", 3600}} {
		if math.Abs(perSecond*u.seconds) >= whole {
			return amount(unit, perSecond*u.seconds) + " " + u.name
		}
	}
	return amount(unit, perSecond*86400) + " a day"
}

// span writes a duration in its two greatest units.
func span(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	for _, u := range []struct {
		name, below string
		size, part  int64
	}{{"d", "h", 86400, 3600}, {"h", "min", 3600, 60}, {"min", "s", 60, 1}} {
		if s < u.size {
			continue
		}
		if rest := s % u.size / u.part; rest > 0 {
			return fmt.Sprintf("%d %s %d %s", s/u.size, u.name, rest, u.below)
		}
		return fmt.Sprintf("%d %s", s/u.size, u.name)
	}
	return fmt.Sprintf("%d s", s)
}
