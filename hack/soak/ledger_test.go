// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

const (
	monday  = run("2026-03-02 0123456789ab")
	tuesday = run("2026-03-03 ba9876543210+")
)

// TestTheLedgerIsWrittenAsItIsRead reads the ledger of all runs, so it also
// finds edits that would stop the next run.
func TestTheLedgerIsWrittenAsItIsRead(t *testing.T) {
	l := assert.Value(readLedger("ledger.json"))(t)
	path := filepath.Join(t.TempDir(), "ledger.json")
	assert.NoError(t, l.write(atomicfile.OS{}, path))
	want := assert.Value(os.ReadFile("ledger.json"))(t)
	assert.Equal(t, string(assert.Value(os.ReadFile(path))(t)), string(want))
	l.add("new", 1.5, monday)
	l.add("new", 0.00004, tuesday)
	assert.Equal(t, *l.Totals["new"], total{1.5, monday, tuesday})
}

func TestADamagedLedgerIsRefused(t *testing.T) {
	for _, damage := range []string{"", `{"totals":`, `{"total":{}}`, `{"next":{"simulation":-1}}`, `{"findings":{}}`} {
		path := filepath.Join(t.TempDir(), "ledger.json")
		assert.NoError(t, os.WriteFile(path, []byte(damage), 0o644))
		assert.ErrorHas(t, assert.Err(readLedger(path)), path+" is damaged", damage)
	}
}

func TestAFindingIsListedOnceUntilItIsRepaired(t *testing.T) {
	l := &ledger{}
	again := finding{Part: "simulation", What: "seed 7: two\n  lines", Command: "go test -seed=7", First: monday, Latest: monday}
	l.addFinding(again)
	again.First, again.Latest = tuesday, tuesday
	l.addFinding(again)
	assert.That(t, len(l.Findings) == 1 && l.Findings[0].What == "seed 7: two lines" && l.Findings[0].First == monday && l.Findings[0].Latest == tuesday,
		"after it happened again: %+v", l.Findings)
	l.Findings[0].Repaired = "0123456789ab"
	l.addFinding(again)
	assert.That(t, len(l.Findings) == 2 && l.Findings[1].First == tuesday, "after it happened again, although it was repaired: %+v", l.Findings)
}
