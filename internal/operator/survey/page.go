// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// pageHead has the colors of the dashboard.
const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Survey of kubelet configurations</title>
<style>
:root { color-scheme: light dark; --bg: #f4f6f8; --surface: #ffffff; --text: #18202c; --muted: #536071; --line: #dce1e8; --good: #17694f; --bad: #b03000; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #10141a; --surface: #1a1f29; --text: #e6eaf0; --muted: #a3adbb; --line: #2c3441; --good: #6fcfa8; --bad: #ff9a6c; }
}
body { margin: 0 auto; padding: 24px; max-width: 1200px; background: var(--bg); color: var(--text); font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin-top: 32px; }
table { border-collapse: collapse; width: 100%; background: var(--surface); border: 1px solid var(--line); }
th, td { text-align: left; vertical-align: top; padding: 8px 12px; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { color: var(--muted); font-size: 12px; } .muted { color: var(--muted); }
td p, td ul { margin: 0; } td ul { padding-left: 16px; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 650; }
code, pre { font: 12px/1.5 ui-monospace, Menlo, monospace; } pre { white-space: pre-wrap; }
</style>
</head>
<body>
<h1>Survey of kubelet configurations</h1>
`

// Page returns the report as a page of HTML that needs nothing else.
func (r *Report) Page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	text := func(s string) string { return html.EscapeString(printable.Line(s)) }
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	table := func(title string, header ...string) {
		line("<h2>%s</h2>\n<table>\n<tr><th>%s</th></tr>", title, strings.Join(header, "</th><th>"))
	}
	folded := func(title, content string) string {
		return "<details><summary>" + title + "</summary>" + content + "</details>"
	}
	names := func(m Members) string {
		return folded(printable.Count(m.Nodes, "node"), text(strings.Join(m.Names, ", ")))
	}
	counts := func(c map[string]int) string { return text(strings.Join(Counts(c), ", ")) }
	line(`<p class="muted">%s</p>`, r.Time.Format(time.RFC3339))
	for _, words := range r.Summary {
		line("<p>%s</p>", text(words))
	}
	header := []string{"", "Nodes", "Kubelet", "Pool", "Instance type", "Differences from 1"}
	if r.Judged != nil {
		header = append(header, "With kubelet "+text(r.Judged.Version))
	}
	table("Configurations", header...)
	for _, c := range r.Configurations {
		cells := []string{fmt.Sprint(c.Number), names(c.Members), counts(c.Kubelets), counts(c.Pools), counts(c.InstanceTypes)}
		var differences strings.Builder
		for _, d := range c.Differences {
			differences.WriteString("<li><code>" + text(d.String()) + "</code></li>")
		}
		fields, _ := json.MarshalIndent(c.Fields, "", "  ") // cannot fail: it was decoded from JSON
		cells = append(cells, "<ul>"+differences.String()+"</ul>"+
			folded("all fields", "<pre>"+html.EscapeString(string(printable.JSON(fields)))+"</pre>"))
		if v := c.Verdict; v != nil {
			class := map[Outcome]string{WouldStart: "good", WouldNotStart: "bad"}[v.Outcome]
			cells = append(cells, fmt.Sprintf(`<p class="%s">%s</p><p>%s</p>`, class, v.Outcome, text(v.Message)))
		}
		line("<tr><td>%s</td></tr>", strings.Join(cells, "</td><td>"))
	}
	line("</table>")
	if len(r.Risks) > 0 {
		table("Risks", "Nodes", "Pool", "Risk", "What to do")
		for _, risk := range r.Risks {
			line("<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>", names(risk.Members), counts(risk.Pools), text(risk.Wrong), text(risk.Do))
		}
		line("</table>")
	}
	if len(r.Unread) > 0 {
		table("Not read", "Nodes", "Pool", "Why")
		for _, g := range r.Unread {
			line(`<tr><td>%s</td><td>%s</td><td>%s<p class="muted">%s</p></td></tr>`, names(g.Members), counts(g.Pools), text(g.Reason), text(g.Detail))
		}
		line("</table>")
	}
	if r.NotCompared != nil {
		line(`<p class="muted">Not compared, because nearly every node has its own value: %s</p>`, text(strings.Join(r.NotCompared, ", ")))
	}
	if r.Judged != nil {
		line(`<p class="muted">Not judged: %s</p>`, text(r.Judged.NotChecked))
	}
	b.WriteString("</body>\n</html>\n")
	return b.String()
}
