package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestPartialRunsAreAddedUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bin", "results.json")
	for _, run := range []measured{
		{Part: "rollout", Nodes: 5000, Figures: []figure{{What: "time", Text: "22.4 ms", Value: 22.4}, {What: "gone", Text: "1"}}},
		{Part: "rollout", Nodes: 20000, Figures: []figure{{What: "writes", Text: "5", Limit: "4", Over: true}}},
		{Part: "memory", Nodes: 20000, Figures: []figure{{What: "most", Text: "170 MiB", Limit: "250 MiB"}}},
		{Part: "rollout", Nodes: 5000, Figures: []figure{{What: "writes", Text: "4"}, {What: "time", Text: "23.0 ms", Value: 23}}},
	} {
		r := assert.Value(readResults(path))(t)
		r.replace(run)
		assert.NoError(t, r.save())
	}
	r := assert.Value(readResults(path))(t)
	want := `| part | figure | limit | 5000 nodes | 20000 nodes |
| --- | --- | --- | --- | --- |
| rollout | writes | 4 | 4 | 5 (over) |
| rollout | time |  | 23.0 ms | - |
| memory | most | 250 MiB | - | 170 MiB |
`
	assert.Equal(t, r.table([]string{"plan", "rollout"}), want, "the table")
	if got, want := r.over(20000), []string{"rollout: writes"}; !slices.Equal(got, want) {
		t.Errorf("over with 20,000 nodes: %q, want %q", got, want)
	}
	got := r.over(5000)
	assert.That(t, got == nil, "over with 5,000 nodes: %q, want none", got)
	v, ok := r.value("rollout", 5000, "time")
	assert.That(t, v == 23 && ok, "the time with 5,000 nodes is %v, %v, want 23", v, ok)
	v, ok = r.value("rollout", 20000, "time")
	assert.That(t, !ok, "the time with 20,000 nodes is %v, want none", v)
}

func TestABrokenFileOfResultsIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	assert.NoError(t, os.WriteFile(path, []byte("[{"), 0o600))
	_, err := readResults(path)
	assert.That(t, err != nil && strings.Contains(err.Error(), path) && strings.Contains(err.Error(), "delete it"),
		"the error is %v, want the file and what to do", err)
}
