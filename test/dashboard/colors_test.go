// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// visions simulate color blindness in linear RGB (Machado, Oliveira and
// Fernandes, 2009, severity 1).
var visions = map[string][3][3]float64{
	"full color vision": {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":        {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia":      {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":        {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

type color [3]float64 // linear RGB

func parseColor(t *testing.T, text string) (c color) {
	t.Helper()
	for i := range c {
		v := assert.Value(strconv.ParseUint(text[1+2*i:3+2*i], 16, 8))(t)
		c[i] = float64(v) / 255
		if c[i] <= 0.04045 {
			c[i] /= 12.92
		} else {
			c[i] = math.Pow((c[i]+0.055)/1.055, 2.4)
		}
	}

	return c
}

func (c color) seenWith(m [3][3]float64) (out color) {
	for i := range out {
		out[i] = min(1, max(0, m[i][0]*c[0]+m[i][1]*c[1]+m[i][2]*c[2]))
	}

	return out
}

// lab converts a color to CIE L*a*b*, in which distances are about as large as
// they look.
func (c color) lab() [3]float64 {
	f := func(v float64) float64 {
		if v > 0.008856 {
			return math.Cbrt(v)
		}

		return 7.787*v + 16.0/116
	}
	x, y, z := f((0.4124*c[0]+0.3576*c[1]+0.1805*c[2])/0.95047), f(0.2126*c[0]+0.7152*c[1]+0.0722*c[2]), f((0.0193*c[0]+0.1192*c[1]+0.9505*c[2])/1.08883)

	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// contrast is that of two colors as WCAG defines it.
func contrast(a, b color) float64 {
	light := func(c color) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	return max(light(a), light(b)) / min(light(a), light(b))
}

func TestHealthsHaveDistinctColorsForColorBlindPeople(t *testing.T) {
	const least = 18 // eight times the difference that is just noticed
	style := read(t, "style.css")
	light, dark, found := strings.Cut(style, "@media (prefers-color-scheme: dark)")
	assert.Must(t, found, "there is no dark scheme")
	dark, _, _ = strings.Cut(dark, "\n}\n")
	backgrounds := regexp.MustCompile(`\.map\b[^{}]*\{[^}]*background: ([^;]+);`).FindAllStringSubmatch(style, -1)
	assert.Must(t, len(backgrounds) == 1 && backgrounds[0][1] == "var(--surface)", "the map has the backgrounds %q", backgrounds)
	for scheme, text := range map[string]string{"light": light, "dark": dark} {
		colors := map[string]color{}
		for _, m := range regexp.MustCompile(`--(h-[a-z]+|surface): (#[0-9a-f]{6});`).FindAllStringSubmatch(text, -1) {
			colors[m[1]] = parseColor(t, m[2])
		}

		assert.Must(t, len(colors) == 7, "%s: %d colors of healths, of what is behind them and of their signs", scheme, len(colors))
		behind, sign := colors["surface"], colors["h-ink"]
		delete(colors, "surface")
		delete(colors, "h-ink")
		for name, c := range colors {
			assert.That(t, contrast(c, behind) >= 3, "%s: cells of %s have a contrast of %.2f", scheme, name, contrast(c, behind))
			assert.That(t, contrast(c, sign) >= 3, "%s: the sign of %s has a contrast of %.2f", scheme, name, contrast(c, sign))
		}

		for vision, matrix := range visions {
			for a, ca := range colors {
				for b, cb := range colors {
					if a >= b {
						continue
					}

					x, y := ca.seenWith(matrix).lab(), cb.seenWith(matrix).lab()
					d := math.Sqrt(math.Pow(x[0]-y[0], 2) + math.Pow(x[1]-y[1], 2) + math.Pow(x[2]-y[2], 2))
					assert.That(t, d >= least, "%s, with %s: %s and %s differ by %.1f, less than %d", scheme, vision, a, b, d, least)
				}
			}
		}
	}
}
