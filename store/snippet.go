package store

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// snippetRunes is the length of a snippet without its marks: about 40 words.
const snippetRunes = 240

// snippet returns the part of a text around the first place where a term is, with >>> and <<< around each place. Case and
// the marks on letters do not count, as in the index; without any place it is the beginning.
func snippet(text string, terms []string) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	flat := folded(runes)
	var places []span
	for _, term := range terms {
		places = append(places, find(flat, folded([]rune(strings.Join(strings.Fields(term), " "))))...)
	}
	if len(places) == 0 { // a phrase whose words are not side by side as they were typed
		for _, term := range terms {
			for _, word := range strings.FieldsFunc(term, func(r rune) bool { return !isToken(r) }) {
				places = append(places, find(flat, folded([]rune(word)))...)
			}
		}
	}
	first := len(runes)
	mark := make([]bool, len(runes))
	for _, p := range places {
		first = min(first, int(p.from))
		for i := p.from; i <= p.to; i++ {
			mark[i] = true
		}
	}
	if len(places) == 0 {
		first = 0
	}
	from := max(0, min(first-snippetRunes/3, len(runes)-snippetRunes))
	to := min(len(runes), from+snippetRunes)
	var b strings.Builder
	if from > 0 {
		b.WriteString("…")
	}
	for i := from; i < to; i++ {
		if mark[i] && (i == from || !mark[i-1]) {
			b.WriteString(">>>")
		}
		b.WriteRune(runes[i])
		if mark[i] && (i == to-1 || !mark[i+1]) {
			b.WriteString("<<<")
		}
	}
	if to < len(runes) {
		b.WriteString("…")
	}
	return b.String()
}

// maxPlaces of one term are marked; a text of one repeated letter has more than anybody reads.
const maxPlaces = 200

func find(text, term []rune) (places []span) {
	if len(term) == 0 {
		return nil
	}
	for i := 0; i+len(term) <= len(text) && len(places) < maxPlaces; {
		if !equalRunes(text[i:i+len(term)], term) {
			i++
			continue
		}
		places = append(places, span{int64(i), int64(i + len(term) - 1)})
		i += len(term)
	}
	return places
}

func equalRunes(a, b []rune) bool {
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// folded makes letters comparable, one for one.
func folded(runes []rune) []rune {
	out := make([]rune, len(runes))
	for i, r := range runes {
		r = unicode.ToLower(r)
		if p, ok := plain[r]; ok {
			r = p
		}
		out[i] = r
	}
	return out
}

// plain has the letters without marks of the usual marked ones.
var plain = func() map[rune]rune {
	m := map[rune]rune{}
	for base, marked := range map[string]string{
		"a": "àáâãäåāăą", "c": "çćĉċč", "d": "ďđ", "e": "èéêëēĕėęě", "g": "ĝğġģ", "h": "ĥ", "i": "ìíîïĩīĭį", "j": "ĵ", "k": "ķ",
		"l": "ĺļľ", "n": "ñńņň", "o": "òóôõöōŏő", "r": "ŕŗř", "s": "śŝşš", "t": "ţť", "u": "ùúûüũūŭůűų", "w": "ŵ", "y": "ýÿŷ", "z": "źżž",
	} {
		b, _ := utf8.DecodeRuneInString(base)
		for _, r := range marked {
			m[r] = b
		}
	}
	return m
}()
