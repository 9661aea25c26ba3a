// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// The lines of the page between which the ledger is. Everything else on the page is for people, and is kept.
const (
	beginLine = "<!-- soak: begin; written and read by make soak, each line must stay as it is -->"
	endLine   = "<!-- soak: end -->"
)

// ledger is what all runs together have done.
type ledger struct {
	totals   []total
	targets  []target
	next     []next
	findings []finding
}

// run is a day and a commit, such as "2026-01-31 0123456789ab". A commit that ends with + had changes that were not committed.
type run string

// amount counts ten-thousandths, so that sums are exact.
type amount int64

const unit amount = 10_000

// total is the sum of a figure over all runs.
type total struct {
	figure        string
	sum           amount
	first, latest run
}

// target is a fuzz target, with the CPU time that it was given.
type target struct {
	name          string // its package and function, such as internal/payload.FuzzDecode
	hours         amount
	executions    amount
	first, latest run
}

// next says with which seed a part continues.
type next struct {
	part string
	seed uint64
}

// finding is a failure. What repairs it is written by people.
type finding struct {
	part, what, command string
	first, latest       run
	repaired            string
}

var (
	figureForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,60}$`)
	targetForm = regexp.MustCompile(`^[a-z0-9/_-]+\.Fuzz[A-Za-z0-9]+$`)
	runForm    = regexp.MustCompile(`^\d{4}-\d\d-\d\d [0-9a-f]{12}\+?$`)
	amountForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,13})(\.[0-9]{0,3}[1-9])?$`)
)

func (a amount) String() string {
	text := strconv.FormatInt(int64(a/unit), 10)
	if rest := a % unit; rest != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%04d", rest), "0")
	}
	return text
}

// parseAmount reads a number that is not negative and has at most four decimals.
func parseAmount(text string) (amount, error) {
	if !amountForm.MatchString(text) {
		return 0, fmt.Errorf("%q is not a number with at most four decimals and no needless zeros", text)
	}
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole+(fraction + "0000")[:4], 10, 64)
	return amount(n), err
}

// The tables, in their order on the page. A row is read by what reads it, and must then print as it was.
type table struct {
	title, header, ruler string
	read                 func(l *ledger, cells []string) error
	rows                 func(l *ledger) []string
	note                 func(l *ledger) string // a line below the table, which follows from the ledger; may be nil
}

var tables = []table{{
	title: "Totals", header: "| figure | total | first run | latest run |", ruler: "| --- | ---: | --- | --- |",
	read: func(l *ledger, c []string) error {
		sum, err := parseAmount(c[1])
		if err == nil && !figureForm.MatchString(c[0]) {
			err = fmt.Errorf("%q is not the name of a figure", c[0])
		}
		l.totals = append(l.totals, total{c[0], sum, run(c[2]), run(c[3])})
		return errors.Join(err, checkRuns(c[2], c[3]))
	},
	rows: func(l *ledger) (out []string) {
		for _, t := range l.totals {
			out = append(out, row(t.figure, t.sum.String(), string(t.first), string(t.latest)))
		}
		return out
	},
	note: func(l *ledger) string {
		days := l.sum("node-days")
		return fmt.Sprintf("Simulated node-years: %.1f.", float64(days)/float64(unit)/365.25)
	},
}, {
	title: "Fuzzing", header: "| target | CPU-hours | executions | first run | latest run |", ruler: "| --- | ---: | ---: | --- | --- |",
	read: func(l *ledger, c []string) error {
		hours, err := parseAmount(c[1])
		executions, err2 := parseAmount(c[2])
		if err == nil && !targetForm.MatchString(c[0]) {
			err = fmt.Errorf("%q is not a package and a fuzz function, such as internal/payload.FuzzDecode", c[0])
		}
		l.targets = append(l.targets, target{c[0], hours, executions, run(c[3]), run(c[4])})
		return errors.Join(err, err2, checkRuns(c[3], c[4]))
	},
	rows: func(l *ledger) (out []string) {
		for _, t := range l.targets {
			out = append(out, row(t.name, t.hours.String(), t.executions.String(), string(t.first), string(t.latest)))
		}
		return out
	},
	note: func(l *ledger) string {
		var hours amount
		for _, t := range l.targets {
			hours += t.hours
		}
		return fmt.Sprintf("CPU-hours in all: %s.", hours)
	},
}, {
	title: "Next seeds", header: "| part | next seed |", ruler: "| --- | ---: |",
	read: func(l *ledger, c []string) error {
		seed, err := strconv.ParseUint(c[1], 10, 64)
		if err == nil && !figureForm.MatchString(c[0]) {
			err = fmt.Errorf("%q is not the name of a part", c[0])
		}
		l.next = append(l.next, next{c[0], seed})
		return err
	},
	rows: func(l *ledger) (out []string) {
		for _, n := range l.next {
			out = append(out, row(n.part, strconv.FormatUint(n.seed, 10)))
		}
		return out
	},
}, {
	title: "Findings", header: "| part | what failed | reproduce it with | first run | latest run | repaired |", ruler: "| --- | --- | --- | --- | --- | --- |",
	read: func(l *ledger, c []string) error {
		command, ok := strings.CutPrefix(c[2], "`")
		command, ok2 := strings.CutSuffix(command, "`")
		if !ok || !ok2 {
			return fmt.Errorf("%q is not a command between backquotes", c[2])
		}
		l.findings = append(l.findings, finding{c[0], c[1], command, run(c[3]), run(c[4]), c[5]})
		return checkRuns(c[3], c[4])
	},
	rows: func(l *ledger) (out []string) {
		for _, f := range l.findings {
			out = append(out, row(f.part, f.what, "`"+f.command+"`", string(f.first), string(f.latest), f.repaired))
		}
		return out
	},
}}

func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |" }

func checkRuns(first, latest string) error {
	for _, r := range []string{first, latest} {
		if !runForm.MatchString(r) {
			return fmt.Errorf("%q is not a day and a commit, such as \"2026-01-31 0123456789ab\"", r)
		}
	}
	if first[:10] > latest[:10] {
		return fmt.Errorf("the first run, %s, is after the latest, %s", first, latest)
	}
	return nil
}

// print returns the ledger's lines, without those that begin and end it.
func (l *ledger) print() []string {
	var out []string
	for _, t := range tables {
		out = append(out, "", "### "+t.title, "", t.header, t.ruler)
		out = append(out, t.rows(l)...)
		if t.note != nil {
			out = append(out, "", t.note(l))
		}
	}
	return append(out, "")
}

// parse reads what print returned. Every other text is an error that names the line; first is the number of the first one.
func parse(lines []string, first int) (*ledger, error) {
	l := &ledger{}
	at := -1
	for i, line := range lines {
		title, ok := strings.CutPrefix(line, "### ")
		if ok {
			at = slices.IndexFunc(tables, func(t table) bool { return t.title == title })
		}
		if at < 0 || !strings.HasPrefix(line, "| ") || line == tables[at].header || line == tables[at].ruler {
			continue // compared below
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		if want := strings.Count(tables[at].header, " | ") + 1; len(cells) != want {
			return nil, fmt.Errorf("line %d: %d cells instead of %d: %s", first+i, len(cells), want, line)
		}
		if err := tables[at].read(l, cells); err != nil {
			return nil, fmt.Errorf("line %d: %w", first+i, err)
		}
	}
	if err := l.unique(); err != nil {
		return nil, err
	}
	want := l.print()
	for i := range max(len(want), len(lines)) {
		switch {
		case i >= len(lines):
			return nil, fmt.Errorf("line %d is missing: %q", first+i, want[i])
		case i >= len(want):
			return nil, fmt.Errorf("line %d does not belong there: %q", first+i, lines[i])
		case lines[i] != want[i]:
			return nil, fmt.Errorf("line %d is %q instead of %q", first+i, lines[i], want[i])
		}
	}
	return l, nil
}

// unique returns an error if a figure, a target or a part has two rows.
func (l *ledger) unique() error {
	seen := map[string]bool{}
	check := func(table, name string) error {
		if key := table + "\n" + name; seen[key] {
			return fmt.Errorf("%s: %s has two rows", table, name)
		} else {
			seen[key] = true
		}
		return nil
	}
	var errs []error
	for _, t := range l.totals {
		errs = append(errs, check("Totals", t.figure))
	}
	for _, t := range l.targets {
		errs = append(errs, check("Fuzzing", t.name))
	}
	for _, n := range l.next {
		errs = append(errs, check("Next seeds", n.part))
	}
	return errors.Join(errs...)
}

func (l *ledger) sum(figure string) amount {
	if i := slices.IndexFunc(l.totals, func(t total) bool { return t.figure == figure }); i >= 0 {
		return l.totals[i].sum
	}
	return 0
}

func (l *ledger) add(figure string, n amount, r run) {
	i := slices.IndexFunc(l.totals, func(t total) bool { return t.figure == figure })
	if i < 0 {
		l.totals = append(l.totals, total{figure: figure, first: r})
		i = len(l.totals) - 1
	}
	l.totals[i].sum += n
	l.totals[i].latest = r
}

func (l *ledger) addFuzzing(name string, hours, executions amount, r run) {
	i := slices.IndexFunc(l.targets, func(t target) bool { return t.name == name })
	if i < 0 {
		l.targets = append(l.targets, target{name: name, first: r})
		slices.SortFunc(l.targets, func(a, b target) int { return cmp.Compare(a.name, b.name) })
		i = slices.IndexFunc(l.targets, func(t target) bool { return t.name == name })
	}
	l.targets[i].hours += hours
	l.targets[i].executions += executions
	l.targets[i].latest = r
}

// seed returns the seed with which a part continues.
func (l *ledger) seed(part string) (uint64, bool) {
	i := slices.IndexFunc(l.next, func(n next) bool { return n.part == part })
	if i < 0 {
		return 0, false
	}
	return l.next[i].seed, true
}

func (l *ledger) setSeed(part string, seed uint64) {
	i := slices.IndexFunc(l.next, func(n next) bool { return n.part == part })
	if i < 0 {
		l.next = append(l.next, next{part: part})
		i = len(l.next) - 1
	}
	l.next[i].seed = seed
}

// addFinding adds a failure, or notes that a known one has happened again.
func (l *ledger) addFinding(f finding) {
	f.what, f.command = inCell(f.what, 300), inCell(f.command, 500)
	for i, known := range l.findings {
		if known.part == f.part && known.command == f.command && known.repaired == "" {
			l.findings[i].latest = f.latest
			return
		}
	}
	l.findings = append(l.findings, f)
}

// inCell returns text that fits into a cell of a table: one line of printable ASCII without the characters that end cells, at
// most so long.
func inCell(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '|' || r == '`' || r == '<' || r == '>':
			return '\''
		case r < ' ' || r > '~':
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.TrimSpace(text[:most]) + "..."
	}
	return text
}

// page is the file with the ledger.
type page struct {
	path          string
	before, after []string // the lines for people
}

// open reads the page. The error says what to do with a page that somebody damaged.
func open(path string) (_ *page, _ *ledger, err error) {
	defer must.Catch(&err)

	data := must.Get(os.ReadFile(path))
	lines := strings.Split(string(data), "\n")
	begin, end := slices.Index(lines, beginLine), slices.Index(lines, endLine)
	if begin < 0 || end < begin {
		return nil, nil, fmt.Errorf("%s has no lines %q and %q in this order: restore them with git checkout", path, beginLine, endLine)
	}
	l, err := parse(lines[begin+1:end], begin+2)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is damaged: %w; correct it, or restore it with git checkout", path, err)
	}
	return &page{path: path, before: lines[:begin+1], after: lines[end:]}, l, nil
}

// write replaces the page atomically.
func (p *page) write(fsys atomicfile.FS, l *ledger) error {
	lines := slices.Concat(p.before, l.print(), p.after)
	return atomicfile.Write(fsys, p.path, []byte(strings.Join(lines, "\n")), fs.FileMode(0o644))
}
