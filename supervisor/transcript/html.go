package transcript

import (
	"html/template"
	"io"
)

// page needs nothing from elsewhere and runs nothing: it can be opened from a disk and sent to somebody.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{.Name}}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; background: #fff }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; color: #555 }
dd { margin: 0; overflow-wrap: anywhere }
article { border-left: 3px solid #bbb; padding: 0 0 0 1rem; margin: 1.5rem 0 }
article.user { border-color: #2a6fbb }
article.assistant { border-color: #2c8a4b }
article h2 { font-size: .85rem; font-weight: 600; color: #555; margin: 0 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; margin: .4rem 0 }
.code, .tool pre { font: .85rem/1.4 ui-monospace, monospace; background: #f4f4f4; padding: .5rem }
.thought { color: #777; font-style: italic }
@media (prefers-color-scheme: dark) {
body { color: #ddd; background: #161616 }
.code, .tool pre { background: #222 }
}
</style>
<h1>{{.Name}}</h1>
{{range .Sessions}}<dl>
{{range .Facts}}<dt>{{index . 0}}<dd>{{index . 1}}
{{end}}</dl>
{{range .Messages}}<article class="{{.Role}}">
<h2>{{.Who}}</h2>
{{with .Reasoning}}<pre class="thought">{{.}}</pre>
{{end}}{{with .Content}}<pre>{{.}}</pre>
{{end}}{{range .Calls}}<pre class="code">{{.Name}} {{.Arguments}}</pre>
{{end}}</article>
{{end}}{{end}}`))

// Facts and Who are for the page.

// Facts are what is known of a session besides its messages, as pairs.
func (s Session) Facts() [][2]string { return s.facts() }

// Who says who wrote a message, and when.
func (m Message) Who() string { return m.who() }

// HTML writes a conversation as one page.
func HTML(out io.Writer, sessions []Session) error {
	return page.Execute(out, map[string]any{"Name": Name(sessions), "Sessions": sessions})
}
