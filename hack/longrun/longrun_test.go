package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// hours returns the samples of a run in which only one figure changes, from value(0) to value(1).
func hours(run float64, column string, value func(part float64) float64) []sample {
	const count = 240
	var out []sample
	for i := range count {
		s := sample{}
		for _, c := range columns {
			s[c] = 1000
		}
		s["run"], s["seconds"], s["kills"] = run, float64(i*30), max(0, float64(i-count/2))
		s["agent_log"], s["controller_log"] = float64(i), float64(i)
		s[column] = value(float64(i) / count)
		out = append(out, s)
	}
	return out
}

func TestOnlyAFigureThatGrowsFailsARun(t *testing.T) {
	for _, tt := range []struct {
		what, column string
		value        func(float64) float64
		want         string // empty: flat
	}{
		{"all is constant", "agent_anon", func(float64) float64 { return 10000 }, ""},
		{"memory grows all the time", "controller_anon", func(part float64) float64 { return 20000 + 40000*part }, "controller_anon from"},
		{"memory grows in the warm-up only", "controller_anon", func(part float64) float64 { return min(60000, 20000+400000*part) }, ""},
		{"one sample in ten is large", "agent_fds", func(part float64) float64 {
			if int(part*240)%10 == 0 {
				return 5000
			}
			return 20
		}, ""},
		{"the agent is small after kills", "agent_goroutines", func(part float64) float64 {
			if part > 0.5 {
				return 3000
			}
			return 30
		}, ""},
		{"files stay", "state_files", func(part float64) float64 { return 10 + 100*part }, "state_files from"},
		{"the log grows evenly", "agent_log", func(part float64) float64 { return 10000 * part }, ""},
		{"the log grows faster and faster", "agent_log", func(part float64) float64 { return 10000 * part * part }, "agent_log from"},
	} {
		err := flat(hours(1, tt.column, tt.value))
		assert.That(t, (err == nil) == (tt.want == "") && (err == nil || strings.Contains(err.Error(), tt.want)),
			"%s: %v, want %q", tt.what, err, tt.want)
	}
}

func TestTooFewSamplesAreNoVerdict(t *testing.T) {
	for _, samples := range [][]sample{nil, hours(1, "run", func(float64) float64 { return 1 })[:6]} {
		assert.That(t, flat(samples) != nil, "%d samples are flat", len(samples))
	}
}

func TestRunsAddUpInTheFile(t *testing.T) {
	file, picture := filepath.Join(t.TempDir(), "data.csv"), filepath.Join(t.TempDir(), "picture.svg")
	for run := 1; run <= 2; run++ {
		f := assert.Value(openData(file, "abc", 7))(t)
		assert.Returns(t, run, "run", run, "has the number")(countRuns(file))
		samples := hours(float64(run), "relay_fds", func(float64) float64 { return 8 })
		delete(samples[5], "relay_fds")
		for _, s := range samples {
			assert.NoError(t, assert.Err(io.WriteString(f, s.String())))
		}
		assert.NoError(t, f.Close())
	}
	samples, err := readData(file)
	assert.Must(t, err == nil && len(samples) == 480 && samples[479]["run"] == 2 && samples[479]["kills"] == 119 && samples[479]["relay_fds"] == 8,
		"%d samples, %v", len(samples), err)
	if v, ok := samples[5]["relay_fds"]; ok {
		t.Errorf("a process that did not run has %v descriptors", v)
	}
	assert.OK(t, report(file, picture))
	raw := assert.Value(os.ReadFile(picture))(t)
	elements := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(string(raw))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		assert.NoError(t, err, "the picture is not XML")
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	assert.That(t, elements["path"] == 14 && strings.Contains(string(raw), "<title>4.0 hours of one node in 2 runs</title>"),
		"the picture has %v, not %d lines, and begins %.300s", elements, 14, raw)
}

func TestADamagedLineOfTheFileIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data.csv")
	for _, c := range []struct{ content, want string }{
		{"run,seconds\n1,30,5\n", ":2: 3 values, not 2"},
		{"run,seconds\n# run 1\n1,x\n", `:3: strconv.ParseFloat: parsing "x"`},
	} {
		assert.NoError(t, os.WriteFile(file, []byte(c.content), 0o600))
		assert.ErrorHas(t, assert.Err(readData(file)), c.want, c.content)
	}
}
