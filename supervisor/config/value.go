package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var sizeUnits = []struct {
	suffix string
	factor float64
}{
	// Longest first: "KiB" also ends in "B".
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40},
	{"b", 1},
}

// ParseSize reads a number of bytes: a plain number, or one with KiB, MiB, GiB, TiB (1024), K, M, G, T (the same)
// or KB, MB, GB, TB (1000).
func ParseSize(s string) (int64, error) {
	number, factor := strings.ToLower(strings.TrimSpace(s)), 1.0
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xXpPeE_nN") {
		return 0, fmt.Errorf("%q is not a size (try 64MiB)", s)
	}
	v *= factor
	switch {
	case v < 0:
		return 0, fmt.Errorf("%q is negative", s)
	case v > math.MaxInt64/2:
		return 0, fmt.Errorf("%q is too large", s)
	}
	return int64(v), nil
}

// FormatSize writes n bytes as ParseSize reads them, in the largest unit that divides it.
func FormatSize(n int64) string {
	for _, u := range []struct {
		name  string
		shift uint
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if n != 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseDuration reads a Go duration ("90s", "1m30s") or a number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if d, err := time.ParseDuration(s); err == nil {
		if d < 0 {
			return 0, fmt.Errorf("%q is negative", s)
		}
		return d, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.ContainsAny(s, "xXpP_nN") {
		return 0, fmt.Errorf("%q is not a duration (try 30s, 2m or a number of seconds)", s)
	}
	return seconds(v, s)
}

func seconds(v float64, text string) (time.Duration, error) {
	switch {
	case v < 0:
		return 0, fmt.Errorf("%s is negative", text)
	case v > math.MaxInt64/float64(time.Second)/2:
		return 0, fmt.Errorf("%s is too long", text)
	}
	return time.Duration(v * float64(time.Second)), nil
}

// FormatDuration writes d without the zero units of Duration.String: 1m, not 1m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
