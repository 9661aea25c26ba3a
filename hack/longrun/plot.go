// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// panel is one diagram of the picture. The lines' values are divided by scale.
type panel struct {
	title string
	scale float64
	lines []line
}

type line struct{ column, label string }

var panels = []panel{
	{"Anonymous memory, MiB", 1024, []line{{"controller_anon", "controller"}, {"agent_anon", "agent"}, {"relay_anon", "relay"}}},
	{"Open descriptors", 1, []line{{"controller_fds", "controller"}, {"agent_fds", "agent"}, {"relay_fds", "relay"}}},
	{"Goroutines", 1, []line{{"controller_goroutines", "controller"}, {"agent_goroutines", "agent"}}},
	{"Threads", 1, []line{{"controller_threads", "controller"}, {"agent_threads", "agent"}, {"relay_threads", "relay"}}},
	{"State directory, KiB", 1, []line{{"state_size", "size"}}},
	{"State and runtime directory, files", 1, []line{{"state_files", "state"}, {"run_files", "runtime"}}},
}

const (
	plotWidth, plotHeight = 330.0, 130.0
	cellWidth, cellHeight = 450.0, 200.0
)

const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="system-ui, sans-serif" font-size="12" role="img">
<title>%s</title>
<style>
  .ground { fill: #ffffff } text { fill: #24292f } .grid { stroke: #d0d7de } .kills { fill: #eaeef2 } .run { stroke: #8c959f; stroke-dasharray: 3 3 }
  path { fill: none; stroke-width: 1.5 } .c0 { stroke: #0969da } .c1 { stroke: #bc4c00 } .c2 { stroke: #1a7f37 }
  .l0 { fill: #0969da } .l1 { fill: #bc4c00 } .l2 { fill: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } .kills { fill: #1c2128 } .run { stroke: #6e7681 }
    .c0 { stroke: #58a6ff } .c1 { stroke: #f0883e } .c2 { stroke: #3fb950 } .l0 { fill: #58a6ff } .l1 { fill: #f0883e } .l2 { fill: #3fb950 }
  }
</style>
<rect class="ground" width="100%%" height="100%%"/>
`

// redraw draws the samples of the file.
func redraw(data, picture string) (err error) {
	defer must.Catch(&err)

	samples := must.Get(readData(data))
	return os.WriteFile(picture, []byte(draw(samples)), 0o644)
}

// draw returns an SVG with all panels. The runs follow each other on the axis of time; periods with kills have a gray ground.
func draw(samples []sample) string {
	times, hours := axis(samples)
	last := sample{}
	if len(samples) > 0 {
		last = samples[len(samples)-1]
	}
	out := &strings.Builder{}
	rows := (len(panels) + 1) / 2
	fmt.Fprintf(out, svgHead, 2*cellWidth, float64(rows)*cellHeight+24, fmt.Sprintf("%.1f hours of one node in %.0f runs", hours, last["run"]))
	for i, p := range panels {
		fmt.Fprintf(out, "<g transform=\"translate(%.0f %.0f)\">\n", float64(i%2)*cellWidth+44, float64(i/2)*cellHeight+34)
		p.draw(out, samples, times, max(hours, 0.01))
		out.WriteString("</g>\n")
	}
	fmt.Fprintf(out, "<text x=\"44\" y=\"%.0f\">Hours of one node, all runs. Gray: the agent is killed every %.0f s on average. Dashed: a new run.</text>\n</svg>\n",
		float64(rows)*cellHeight+10, meanBetweenKills.Seconds())
	return out.String()
}

// axis returns the time of each sample in hours, runs one after the other, and the end.
func axis(samples []sample) (times []float64, end float64) {
	begin := 0.0
	for i, s := range samples {
		if i > 0 && s["run"] != samples[i-1]["run"] {
			begin = end
		}
		end = begin + s["seconds"]/3600
		times = append(times, end)
	}
	return times, end
}

func (p panel) draw(out *strings.Builder, samples []sample, times []float64, hours float64) {
	most := 0.0
	for _, s := range samples {
		for _, l := range p.lines {
			most = max(most, s[l.column]/p.scale)
		}
	}
	step := niceStep(most / 3)
	top := step
	for top < most {
		top += step
	}
	x := func(t float64) float64 { return t / hours * plotWidth }
	y := func(v float64) float64 { return plotHeight - v/top*plotHeight }
	fmt.Fprintf(out, "<text y=\"-12\" font-weight=\"600\">%s</text>\n", p.title)
	for i := 1; i < len(samples); i++ {
		switch a, b := samples[i-1], samples[i]; {
		case a["run"] != b["run"]:
			fmt.Fprintf(out, "<line class=\"run\" x1=\"%.1f\" x2=\"%.1f\" y2=\"%.0f\"/>\n", x(times[i-1]), x(times[i-1]), plotHeight)
		case b["kills"] > 0:
			fmt.Fprintf(out, "<rect class=\"kills\" x=\"%.2f\" width=\"%.2f\" height=\"%.0f\"/>\n", x(times[i-1]), x(times[i])-x(times[i-1])+0.05, plotHeight)
		}
	}
	for v := 0.0; v <= top; v += step {
		fmt.Fprintf(out, "<line class=\"grid\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"-6\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", plotWidth, y(v), y(v), y(v)+4, v)
	}
	for t, step := 0.0, niceStep(hours/4); t <= hours; t += step {
		fmt.Fprintf(out, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.3g</text>\n", x(t), plotHeight+16, t)
	}
	var labels []float64 // heights that are taken
	for i, l := range p.lines {
		path, pen, height := &strings.Builder{}, "M", plotHeight
		for j, s := range samples {
			v, ok := s[l.column]
			if !ok || j > 0 && s["run"] != samples[j-1]["run"] {
				pen = "M"
			}
			if ok {
				height = y(v / p.scale)
				fmt.Fprintf(path, "%s%.1f %.1f", pen, x(times[j]), height)
				pen = "L"
			}
		}
		for _, taken := range labels { // the lines are in descending order
			height = max(height, taken+13)
		}
		labels = append(labels, height)
		fmt.Fprintf(out, "<path class=\"c%d\" d=\"%s\"/><text class=\"l%d\" x=\"%.0f\" y=\"%.1f\">%s</text>\n", i, path, i, plotWidth+6, height+4, l.label)
	}
}

// niceStep returns 1, 2 or 5 times a power of ten, at least v.
func niceStep(v float64) float64 {
	for power := 0.001; ; power *= 10 {
		for _, factor := range []float64{1, 2, 5} {
			if factor*power >= v {
				return factor * power
			}
		}
	}
}
