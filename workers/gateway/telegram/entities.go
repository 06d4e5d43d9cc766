package telegram

import (
	"github.com/go-telegram/bot/models"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

// What a message may hold. Telegram counts UTF-16 units after the styling, and ignores entities after the hundredth.
const (
	maxText     = 4096
	maxCaption  = 1024
	maxEntities = 100
)

// The styles as Telegram names them. Text is sent with entities and not as HTML or Markdown of Telegram's own: nothing is
// escaped, so the length is exact and no text can be misread as a mark; cutting a styled text is cutting numbers; and
// when the styling is refused, the same text goes without it.
var entityTypes = map[text.Style]models.MessageEntityType{
	text.Bold: models.MessageEntityTypeBold, text.Italic: models.MessageEntityTypeItalic,
	text.Strike: models.MessageEntityTypeStrikethrough, text.Code: models.MessageEntityTypeCode,
	text.Pre: models.MessageEntityTypePre, text.Quote: models.MessageEntityTypeBlockquote,
	text.Link: models.MessageEntityTypeTextLink,
}

// render makes the messages of a Markdown text. There is always one.
func render(md string) []text.Styled {
	parts := text.Markdown(md).Split(text.Limit{Size: maxText, Spans: maxEntities})
	if len(parts) == 0 {
		return []text.Styled{text.Plain("(no text)")}
	}
	return parts
}

// entities translates spans, whose places are bytes, into Telegram's, which are UTF-16 units.
func entities(s text.Styled) []models.MessageEntity {
	if len(s.Spans) == 0 {
		return nil
	}
	at := map[int]int{len(s.Text): 0} // byte → unit, for the places that are asked for
	for _, sp := range s.Spans {
		at[sp.Start], at[sp.End] = 0, 0
	}
	n := 0
	for i, r := range s.Text {
		if _, asked := at[i]; asked {
			at[i] = n
		}
		n += text.UTF16(r)
	}
	at[len(s.Text)] = n
	out := make([]models.MessageEntity, 0, len(s.Spans))
	for _, sp := range s.Spans {
		e := models.MessageEntity{Type: entityTypes[sp.Style], Offset: at[sp.Start], Length: at[sp.End] - at[sp.Start]}
		switch sp.Style {
		case text.Link:
			e.URL = sp.Arg
		case text.Pre:
			e.Language = sp.Arg
		}
		out = append(out, e)
	}
	return out
}
