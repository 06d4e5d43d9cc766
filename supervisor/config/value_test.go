package config

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "1b": 1, "64MiB": 64 << 20, "64 mib": 64 << 20, "1.5GiB": 3 << 29, "2G": 2 << 30, "512m": 512 << 20,
		"1kB": 1000, "1GB": 1_000_000_000, " 7K ": 7 << 10,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "64Q", "MiB", "-1", "-1MiB", "1e9", "0x10", "inf", "NaN", "1 000", "99999999TiB", "1MiBs"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestFormatSizeIsReadBack(t *testing.T) {
	for _, n := range []int64{0, 1, 1023, 1 << 10, 1000, 1 << 20, 3 << 29, 1 << 40} {
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Errorf("%d is written as %s and read as %d, %v", n, FormatSize(n), got, err)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "60": time.Minute, "0.5": 500 * time.Millisecond, "90s": 90 * time.Second, "1m30s": 90 * time.Second, " 2h ": 2 * time.Hour,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "-1", "-1s", "1d", "1e300", "inf", "nan", "0x1p3", "10_0"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %s, want an error", text, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "10s": 10 * time.Second, "1m": time.Minute, "1m30s": 90 * time.Second, "1h": time.Hour, "1h10m": 70 * time.Minute,
		"1h0m5s": time.Hour + 5*time.Second, "500ms": 500 * time.Millisecond,
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"limits", "restart", "memory", "fds"}
	for word, want := range map[string]string{
		"limit": "limits", "Limits": "limits", "memroy": "memory", "fd": "fds", "restrat": "restart", "banana": "", "": "", "foo": "", "ps": "", "fsd": "fds",
	} {
		if got := Suggest(word, known); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", word, got, want)
		}
	}
}
