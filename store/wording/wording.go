// Package wording puts into words what more than one package tells people. It is down here for stores to use it as well.
package wording

import "fmt"

// Count says how many there are of something: "1 file", "2 files".
func Count[N ~int | ~int32 | ~int64 | ~uint32 | ~uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
