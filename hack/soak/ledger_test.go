// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

const (
	monday  = run("2026-03-02 0123456789ab")
	tuesday = run("2026-03-03 ba9876543210+")
)

// filled returns a ledger with a row or two in each table.
func filled() *ledger {
	l := &ledger{}
	l.add("histories", 83*unit, monday)
	l.add("node-days", 365250*unit/1000, monday)
	l.addFuzzing("internal/payload.FuzzDecode", 5000, 1000*unit, monday)
	l.addFuzzing("internal/operator/kubeadm.FuzzDocument", 2501, 7*unit, tuesday)
	l.setSeed("simulation", 90084)
	l.addFinding(finding{part: "simulation", what: "seed 7: a | in the text\nof <two> lines", command: "go test -seed=7", first: monday, latest: monday})
	return l
}

func TestALedgerIsReadAsItWasPrinted(t *testing.T) {
	for _, l := range []*ledger{{}, filled()} {
		printed := l.print()
		again := assert.Value(parse(printed, 1))(t)
		got := again.print()
		assert.That(t, strings.Join(got, "\n") == strings.Join(printed, "\n"), "printed %q, and after it was read %q", printed, got)
	}
	want := "| simulation | seed 7: a ' in the text of 'two' lines | `go test -seed=7` | 2026-03-02 0123456789ab | 2026-03-02 0123456789ab |  |"
	for _, line := range []string{"| histories | 83 | " + string(monday) + " | " + string(monday) + " |", "Simulated node-years: 1.0.", "CPU-hours in all: 0.7501.", want} {
		all := "\n" + strings.Join(filled().print(), "\n")
		assert.That(t, strings.Contains(all, "\n"+line+"\n"), "%s\nhas no line %q", all, line)
	}
}

func TestAFindingIsListedOnceUntilItIsRepaired(t *testing.T) {
	l := filled()
	again := l.findings[0]
	again.first, again.latest = tuesday, tuesday
	l.addFinding(again)
	assert.That(t, len(l.findings) == 1 && l.findings[0].first == monday && l.findings[0].latest == tuesday,
		"after it happened again: %+v", l.findings)
	l.findings[0].repaired = "0123456789ab"
	l.addFinding(again)
	assert.That(t, len(l.findings) == 2 && l.findings[1].first == tuesday, "after it happened again, although it was repaired: %+v", l.findings)
}

func TestADamagedPageIsRefusedAndNamesTheLine(t *testing.T) {
	whole := "# Page\n" + beginLine + "\n" + strings.Join(filled().print(), "\n") + "\n" + endLine + "\nText\n"
	for _, damage := range []struct{ old, new, want string }{
		{"", "", ""},
		{endLine, "", "has no lines"},
		{"| 83 |", "| 83.00001 |", `line 8: "83.00001" is not a number`},
		{"| 83 |", "| -83 |", `line 8: "-83" is not a number`},
		{"| 83 |", "| 83 | 1 |", "line 8: 5 cells instead of 4"},
		{"| histories |", "| Histories |", `line 8: "Histories" is not the name of a figure`},
		{"| histories | 83 | 2026-03-02", "| histories | 83 | 2026-03-05", "line 8: the first run, 2026-03-05 0123456789ab, is after the latest"},
		{"| node-days |", "| histories |", "histories has two rows"},
		{"| simulation | 90084 |", "| simulation | 1e5 |", `"1e5": invalid syntax`},
		{"CPU-hours in all: 0.7501.", "CPU-hours in all: 2.", `line 20 is "CPU-hours in all: 2." instead of "CPU-hours in all: 0.7501."`},
		{"### Totals\n", "### Totals\nsome words\n", `line 5 is "some words"`},
		{"internal/payload.FuzzDecode", "internal/payload", `"internal/payload" is not a package and a fuzz function`},
		{"`go test -seed=7`", "go test -seed=7", "is not a command between backquotes"},
	} {
		path := filepath.Join(t.TempDir(), "soak.md")
		assert.NoError(t, os.WriteFile(path, []byte(strings.Replace(whole, damage.old, damage.new, 1)), 0o644))
		_, _, err := open(path)
		assert.That(t, (damage.want != "" || err == nil) && (damage.want == "" || err != nil && strings.Contains(err.Error(), damage.want)),
			"%q instead of %q: the error is %v, want %q", damage.new, damage.old, err, damage.want)
	}
}

func TestTheTextAroundTheLedgerIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soak.md")
	text := "# Page\n\nBefore.\n" + beginLine + "\n" + strings.Join(filled().print(), "\n") + "\n" + endLine + "\n\nAfter.\n"
	assert.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	p, l, err := open(path)
	assert.NoError(t, err)
	l.add("histories", unit, tuesday)
	assert.NoError(t, p.write(atomicfile.OS{}, l))
	got, err := os.ReadFile(path)
	want := strings.Replace(text, "| 83 | 2026-03-02 0123456789ab | 2026-03-02 0123456789ab |", "| 84 | 2026-03-02 0123456789ab | 2026-03-03 ba9876543210+ |", 1)
	assert.That(t, err == nil && string(got) == want, "the page is now\n%s\nwant\n%s", got, want)
}

// TestThePageIsReadable finds edits of hack/soak/README.md that would stop the next run.
func TestThePageIsReadable(t *testing.T) {
	if _, _, err := open("README.md"); err != nil {
		t.Error(err)
	}
}
