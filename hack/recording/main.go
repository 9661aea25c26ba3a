// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command recording writes docs/images/simulate.svg: the recording of a
// terminal in which a command of the README runs. It runs the command, whose
// output is always the same. It is run in the root of the repository.
package main

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"os"
	"strings"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	file    = "docs/images/simulate.svg"
	command = "rollout plan -f config/examples/rollout-dropin.yaml --simulate --fail-rate 3% --nodes 200"
	columns = 100
	// Pixels of a character and a line, and the seconds between two lines.
	width, height, pause = 7.8, 17.0, 0.12
)

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13" role="img">
<title>kubectl evenkeel %s</title>
<style>
  rect { fill: #f6f8fa; stroke: #d0d7de } text { fill: #24292f; white-space: pre; animation: show 0.1s both } .command { font-weight: bold } .bad { fill: #cf222e }
  @keyframes show { from { opacity: 0 } }
  @media (prefers-color-scheme: dark) { rect { fill: #0d1117; stroke: #30363d } text { fill: #e6edf3 } .bad { fill: #ff7b72 } }
  @media (prefers-reduced-motion: reduce) { text { animation: none } }
</style>
<rect x="0.5" y="0.5" width="99.9%%" height="99.9%%" rx="6"/>
`

func main() {
	os.Exit(must.ExitCode("recording", func() {
		must.OK(os.WriteFile(file, []byte(must.Get(record())), 0o644))
	}))
}

// record runs the command, and returns the picture.
func record() (string, error) {
	var out bytes.Buffer
	code := cli.Run(context.Background(), program.NewInfo("kubectl-evenkeel", "v0.0.0", ""), strings.Fields(command),
		genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	if code != 0 {
		return "", fmt.Errorf("%s ended with %d: %s", command, code, out.String())
	}

	return draw("$ kubectl evenkeel " + command + "\n" + out.String()), nil
}

// draw returns the picture of a terminal's text, whose lines appear one after
// another.
func draw(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		runes := []rune(strings.TrimRight(line, " \n"))
		for len(runes) > columns {
			cut := strings.LastIndex(string(runes[:columns]), " ") // the words are ASCII
			lines, runes = append(lines, string(runes[:cut])), append([]rune("  "), runes[cut+1:]...)
		}

		lines = append(lines, string(runes))
	}

	var b strings.Builder
	w, h := width*(columns+2), height*float64(len(lines)+1)
	fmt.Fprintf(&b, head, w, h, w, html.EscapeString(command))
	for i, line := range lines {
		class := ""
		switch {
		case i == 0:
			class = ` class="command"`
		case strings.HasPrefix(line, "Result"):
			class = ` class="bad"`
		case line == "":
			continue
		}

		fmt.Fprintf(&b, "<text%s x=\"%.1f\" y=\"%.1f\" style=\"animation-delay: %.2fs\">%s</text>\n",
			class, width, height*(float64(i)+1.2), pause*float64(i), html.EscapeString(line))
	}

	return b.String() + "</svg>\n"
}
