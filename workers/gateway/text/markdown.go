package text

import (
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// maxMarkdown is the longest text that is parsed. A reply is a few thousand bytes; something far longer is a dump,
// which no styling makes more readable and for which the parser may need seconds (its worst cases are quadratic).
const maxMarkdown = 64 << 10

// markdown reads what models write. Compared with CommonMark it has strike-through, tables and task lists, and lacks what
// would make text vanish: HTML (its tags stay visible) and link definitions ("[note]: see below" is a sentence). Underlined
// headings are left out too: a model that writes a line of dashes means a rule, and beside a table the parser puts the
// heading in the wrong place.
var markdown = newMarkdown()

func newMarkdown() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(
			util.Prioritized(parser.NewThematicBreakParser(), 200),
			util.Prioritized(parser.NewListParser(), 300),
			util.Prioritized(parser.NewListItemParser(), 400),
			util.Prioritized(parser.NewCodeBlockParser(), 500),
			util.Prioritized(parser.NewATXHeadingParser(), 600),
			util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
			util.Prioritized(parser.NewBlockquoteParser(), 800),
			util.Prioritized(parser.NewParagraphParser(), 1000),
		),
		parser.WithInlineParsers(
			util.Prioritized(extension.NewTaskCheckBoxParser(), 0),
			util.Prioritized(parser.NewCodeSpanParser(), 100),
			util.Prioritized(parser.NewLinkParser(), 200),
			util.Prioritized(parser.NewAutoLinkParser(), 300),
			util.Prioritized(parser.NewEmphasisParser(), 500),
			util.Prioritized(extension.NewStrikethroughParser(), 500),
		),
		parser.WithParagraphTransformers(util.Prioritized(extension.NewTableParagraphTransformer(), 200)),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
	)
}

// Markdown reads md. Text that cannot be read as Markdown comes back as it is.
func Markdown(md string) (s Styled) {
	md = strings.ToValidUTF8(strings.ReplaceAll(md, "\r\n", "\n"), "\uFFFD")
	if len(md) > maxMarkdown {
		return Plain(md)
	}
	// A fault in the parser must cost the styling, not the text.
	defer func() {
		if recover() != nil {
			s = Plain(md)
		}
	}()
	source := []byte(md + "\n") // the parser overlooks a fence's language of one letter at the very end
	w := &writer{source: source}
	w.blocks(markdown.Parse(text.NewReader(source)), true)
	return w.finish()
}

// blocks writes the block children of n, with an empty line between them if loose.
func (w *writer) blocks(n ast.Node, loose bool) {
	between := 1
	if loose {
		between = 2
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if c.PreviousSibling() != nil {
			w.lineBreak(between)
		}
		w.block(c)
	}
}

func (w *writer) block(n ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		w.styled(Bold, "", func() { w.inlines(n) })
	case *ast.Blockquote:
		w.styled(Quote, "", func() { w.blocks(n, true) })
	case *ast.List:
		w.list(n)
	case *ast.FencedCodeBlock:
		w.fenced(n)
	case *ast.CodeBlock:
		w.pre("", string(n.Lines().Value(w.source)))
	case *ast.ThematicBreak:
		w.write("———")
	case *extast.Table:
		w.table(n)
	default:
		w.inlines(n) // paragraphs and the text of tight list items
	}
}

func (w *writer) list(n *ast.List) {
	number, between := n.Start, 2
	if n.IsTight {
		between = 1
	}
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		if item.PreviousSibling() != nil {
			w.lineBreak(between)
		}
		mark := "• "
		if n.IsOrdered() {
			mark = strconv.Itoa(number) + string(n.Marker) + " "
			number++
		}
		w.write(mark)
		w.indented(strings.Repeat(" ", len([]rune(mark))), func() { w.blocks(item, !n.IsTight) })
	}
}

// fenced writes a code block. What follows the language on the opening line (often a file name) is shown before
// it; so is an opening line that is no language at all.
func (w *writer) fenced(n *ast.FencedCodeBlock) {
	code := string(n.Lines().Value(w.source))
	var info string
	if n.Info != nil {
		info = strings.TrimSpace(unescape(n.Info.Segment.Value(w.source)))
	}
	language, rest, _ := strings.Cut(info, " ")
	if strings.TrimSpace(code) == "" || !isLanguage(language) {
		language, rest = "", info
	}
	if rest = strings.TrimSpace(rest); rest != "" {
		w.write(rest)
		w.lineBreak(1)
	}
	w.pre(language, code)
}

// isLanguage reports whether s can name the language of a code block.
func isLanguage(s string) bool {
	if len(s) > 32 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+-#._", r))
	})
}
