package openai

import (
	"strings"
	"unicode"
)

// thinkFilter takes reasoning out of the text of servers that leave it there between tags. A tag opens only at the
// very start of an answer: anywhere else it is something that the answer talks about.
type thinkFilter struct {
	state thinkState
	close string // the tag that ends the reasoning
	held  string // may become a tag
}

type thinkState int

const (
	thinkStart thinkState = iota
	thinkInside
	thinkAfter // the blank lines after the reasoning
	thinkOver
)

var thinkTags = []string{"think", "thinking", "reasoning", "REASONING_SCRATCHPAD"}

// add takes a piece of content and returns what of it, and of what was held back, is text and reasoning.
func (f *thinkFilter) add(piece string) (text, thought string) {
	f.held += piece
	for {
		switch f.state {
		case thinkStart:
			rest := strings.TrimLeftFunc(f.held, unicode.IsSpace)
			tag, open := opening(rest)
			switch {
			case tag != "":
				f.state, f.close, f.held = thinkInside, "</"+tag+">", rest[len(tag)+2:]
				continue
			case open:
				return text, thought
			}
			f.state = thinkOver
		case thinkInside:
			before, after, found := strings.Cut(f.held, f.close)
			if !found {
				keep := overlap(f.held, f.close)
				thought += f.held[:len(f.held)-keep]
				f.held = f.held[len(f.held)-keep:]
				return text, thought
			}
			thought += before
			f.state, f.held = thinkAfter, after
		case thinkAfter:
			if f.held = strings.TrimLeftFunc(f.held, unicode.IsSpace); f.held == "" {
				return text, thought
			}
			f.state = thinkOver
		default:
			text, f.held = text+f.held, ""
			return text, thought
		}
	}
}

// rest returns what is still held back, at the end of the answer.
func (f *thinkFilter) rest() (text, thought string) {
	held := f.held
	f.held = ""
	if f.state == thinkInside {
		return "", held
	}
	return held, ""
}

// opening returns the tag that text starts with, or whether it may become one with more text.
func opening(text string) (tag string, open bool) {
	for _, t := range thinkTags {
		if strings.HasPrefix(text, "<"+t+">") {
			return t, false
		}
		open = open || strings.HasPrefix("<"+t+">", text)
	}
	return "", open
}

// overlap returns how long the end of text is that starts tag.
func overlap(text, tag string) int {
	for n := min(len(text), len(tag)-1); n > 0; n-- {
		if strings.HasPrefix(tag, text[len(text)-n:]) {
			return n
		}
	}
	return 0
}
