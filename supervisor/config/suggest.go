package config

import "strings"

// Suggest returns the word of known that word was probably meant to be, or "" if none is near.
func Suggest(word string, known []string) string {
	// A third of the letters may be wrong, but of a short word one alone: with two of three any word is near.
	best, bestDistance := "", max(1, (len(word)+1)/3)
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d <= bestDistance && (best == "" || d < bestDistance) {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts the edits (insert, delete, replace, swap neighbours) that turn a into b.
func distance(a, b string) int {
	var before []int // row i-2
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
