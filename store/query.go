package store

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxQuery = 2048 // characters of a query that are looked at, as in Hermes
	maxTerms = 32   // terms of a query that are looked for: each costs a look into the index
)

// A term is a word or a phrase that a message must have. A prefix may go on after its end.
type term struct {
	text   string
	prefix bool
}

// A clause is one alternative of a query: all of must and none of not.
type clause struct{ must, not []term }

// A parsedQuery is what a person typed, made into something that the full-text index always understands.
type parsedQuery struct {
	any []clause
	raw string // the text without the ends' white space, for what is no word at all
}

// parseQuery reads words, "phrases", prefix*, and the operators AND, OR and NOT. Nothing is an error: quotes without an
// end, operators without an operand and the index's own special characters are dropped, and words with a dot, a hyphen
// or a colon in them are phrases.
func parseQuery(text string) parsedQuery {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, firstRunes(text, maxQuery))
	p := parsedQuery{raw: strings.TrimSpace(text)}
	var c clause
	negate, terms := false, 0
	for _, w := range words(p.raw) {
		switch {
		case !w.quoted && w.text == "AND":
		case !w.quoted && w.text == "NOT":
			negate = true
		case !w.quoted && w.text == "OR":
			p.add(c)
			c, negate = clause{}, false
		default:
			t, ok := w.term()
			if !ok || terms == maxTerms {
				continue
			}
			terms++
			if negate {
				c.not = append(c.not, t)
			} else {
				c.must = append(c.must, t)
			}
			negate = false
		}
	}
	p.add(c)
	return p
}

// add takes an alternative, unless it says only what must not be there.
func (p *parsedQuery) add(c clause) {
	if len(c.must) > 0 {
		p.any = append(p.any, c)
	}
}

type queryWord struct {
	text   string
	quoted bool
}

// words splits a query at white space outside of quotes. The last quote of an odd number is white space.
func words(text string) (list []queryWord) {
	for {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		if text == "" {
			return list
		}
		if text[0] == '"' {
			inner, rest, closed := strings.Cut(text[1:], `"`)
			if closed {
				list = append(list, queryWord{inner, true})
				text = rest
			} else {
				text = text[1:]
			}
			continue
		}
		end := strings.IndexFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '"' })
		if end < 0 {
			end = len(text)
		}
		list = append(list, queryWord{text: text[:end]})
		text = text[end:]
	}
}

// term makes a term of a word, if there is a letter or a digit in it: the index knows nothing else.
func (w queryWord) term() (term, bool) {
	text := strings.TrimSpace(w.text)
	prefix := !w.quoted && strings.HasSuffix(text, "*")
	if !w.quoted {
		text = strings.TrimFunc(text, func(r rune) bool { return strings.ContainsRune(`+-^*(){}[]<>:,;'`, r) })
	}
	if !strings.ContainsFunc(text, isToken) {
		return term{}, false
	}
	return term{text, prefix}, true
}

// isToken says whether the tokenizer of SQLite keeps a character.
func isToken(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Co, r)
}

// match is the query in the language of FTS5. Every term is quoted, so that nothing in it has a meaning.
func (p parsedQuery) match() string {
	var any []string
	for _, c := range p.any {
		var must []string
		for _, t := range c.must {
			must = append(must, t.match())
		}
		text := "(" + strings.Join(must, " AND ") + ")"
		for _, t := range c.not {
			text = "(" + text + " NOT " + t.match() + ")"
		}
		any = append(any, text)
	}
	return strings.Join(any, " OR ")
}

func (t term) match() string {
	text := `"` + strings.ReplaceAll(t.text, `"`, `""`) + `"`
	if t.prefix {
		text += " *"
	}
	return text
}

// like is the query as a condition over columns, for what no index can answer. For a query without any word it looks for
// the text as it is.
func (p parsedQuery) like(columns ...string) (condition string, args []any) {
	any := p.any
	if len(any) == 0 {
		any = []clause{{must: []term{{text: p.raw}}}}
	}
	one := func(t term) string {
		var sides []string
		for _, c := range columns {
			sides = append(sides, "coalesce("+c+", '') LIKE ? ESCAPE '\\'")
			args = append(args, "%"+likeEscape.Replace(t.text)+"%")
		}
		return "(" + strings.Join(sides, " OR ") + ")"
	}
	var alternatives []string
	for _, c := range any {
		var parts []string
		for _, t := range c.must {
			parts = append(parts, one(t))
		}
		for _, t := range c.not {
			parts = append(parts, "NOT "+one(t))
		}
		alternatives = append(alternatives, "("+strings.Join(parts, " AND ")+")")
	}
	return "(" + strings.Join(alternatives, " OR ") + ")", args
}

var likeEscape = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// terms returns what is looked for, for the marks of a snippet.
func (p parsedQuery) terms() (list []string) {
	for _, c := range p.any {
		for _, t := range c.must {
			list = append(list, t.text)
		}
	}
	if list == nil {
		list = []string{p.raw}
	}
	return list
}

// all says whether a condition holds for every term.
func (p parsedQuery) all(ok func(string) bool) bool {
	for _, c := range p.any {
		for _, t := range append(c.must[:len(c.must):len(c.must)], c.not...) {
			if !ok(t.text) {
				return false
			}
		}
	}
	return true
}

// hasCJK says whether a text has characters of a script that is written without spaces, of which the index of words
// makes one long word.
func hasCJK(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
	})
}

// firstRunes cuts a text to n characters.
func firstRunes(text string, n int) string {
	for i := range text {
		if n--; n < 0 {
			return text[:i]
		}
	}
	return text
}
