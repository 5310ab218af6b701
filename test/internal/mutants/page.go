// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Page is docs/protection.md: what was shown of each protection, by scenarios on real control planes and by tests. A run of
// a part replaces the rows of that part.
type Page struct {
	scenarios []ScenarioRow
	tests     []TestRow
}

// Scenario names a scenario of test/e2e.
type Scenario struct {
	Number int
	Title  string
}

// ScenarioRow says by which rule a scenario goes wrong without a protection.
type ScenarioRow struct {
	Scenario
	// Without is the protection, By says how it was switched off.
	Without, By string
	// CaughtBy are the rules that were to catch it, and did; Also the others that it broke.
	CaughtBy, Also string
	// with is the verdict with all protections.
	with string
	// Commit is that of the run, Rests what RestsOn was then.
	Commit, Rests string
}

// TestRow says by which test a protection is missed, at which commit, and what RestsOn was then.
type TestRow struct{ Without, Mutant, CaughtBy, Commit, Rests string }

const pageHead = `# Protections

Each protection was taken away once, and had to be missed: by the rule that is named, in a process that went on
running, under the fault that the scenario or test is about. A test that passes without its protection would test nothing.
Generated from runs, which the commits are of; an edit of one or two lines that were there takes a protection away, and the
edits are in [test/internal/mutants](../test/internal/mutants). *Rests on* is a digest of the edit, of the files that are edited, and of
that of the scenario or test; comments in Go code do not count. ` + "`hack/verify-protection.sh`" + `, a part of ` + "`make verify`" + `, fails if one of these has changed
since, and says of which rows, and how to make them again.

## By scenarios on real control planes

` + "`make e2e-protection`" + ` runs each scenario once with all protections, once with the gates off if stock goes wrong, and once without each protection that it is about. A long scenario
that is not here is another form of one of its number.

`

const testsHead = `
## By tests

` + "`make protection`" + ` runs what needs no control plane: a unit test, or the random histories of
[the composition](development.md#the-composition), of which the rule is named that ours breaks. The same test passes with
the protection.

`

var (
	scenarioColumns = []string{"Scenario", "Without", "Switched off by", "Caught by", "Goes wrong by, too", "With it", "Commit", "Rests on"}
	testColumns     = []string{"Without", "Mutant", "Caught by", "Commit", "Rests on"}
)

// ReadPage reads a page, or returns an empty one if there is none.
func ReadPage(path string) (*Page, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Page{}, nil
	}
	if err != nil {
		return nil, err
	}
	page := &Page{}
	columns := 0
	for i, line := range strings.Split(string(data), "\n") {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		if slices.Equal(cells, scenarioColumns) || slices.Equal(cells, testColumns) {
			columns = len(cells)
			continue
		}
		if len(cells) != columns {
			return nil, fmt.Errorf("%s:%d: %d cells in place of %d", path, i+1, len(cells), columns)
		}
		if columns == len(testColumns) {
			page.tests = append(page.tests, TestRow{cells[0], unquoted(cells[1]), cells[2], cells[3], cells[4]})
			continue
		}
		number, title, _ := strings.Cut(cells[0], ", ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		page.scenarios = append(page.scenarios, ScenarioRow{Scenario{n, title}, cells[1], cells[2], cells[3], strings.TrimSpace(cells[4]), cells[5], cells[6], cells[7]})
	}
	return page, nil
}

func unquoted(s string) string { return strings.Trim(s, "`") }

// Scenarios returns the rows of the scenarios.
func (p *Page) Scenarios() []ScenarioRow { return slices.Clone(p.scenarios) }

// Tests returns the rows of the tests.
func (p *Page) Tests() []TestRow { return slices.Clone(p.tests) }

// With is the verdict of the scenario with all protections.
func (r ScenarioRow) With() string { return r.with }

// Holds notes the verdict of a scenario with all protections.
func (p *Page) Holds(s Scenario, verdict string) {
	found := false
	for i := range p.scenarios {
		if p.scenarios[i].Scenario == s {
			p.scenarios[i].with, found = verdict, true
		}
	}
	if !found { // Until a row without a protection is added.
		p.scenarios = append(p.scenarios, ScenarioRow{Scenario: s, with: verdict})
	}
}

// Add puts a row in the place of the one of the same scenario and protection.
func (p *Page) Add(row ScenarioRow) {
	row.with = "not run"
	for _, old := range p.scenarios {
		if old.Scenario == row.Scenario {
			row.with = old.with
		}
	}
	p.scenarios = append(slices.DeleteFunc(p.scenarios, func(old ScenarioRow) bool {
		return old.Scenario == row.Scenario && (old.By == row.By || old.By == "")
	}), row)
}

// AddTest puts a row in the place of the one of the same mutant.
func (p *Page) AddTest(row TestRow) {
	p.tests = append(slices.DeleteFunc(p.tests, func(old TestRow) bool { return old.Mutant == row.Mutant }), row)
}

// Write writes the page.
func (p *Page) Write(path string) error {
	var text strings.Builder
	text.WriteString(pageHead)
	table(&text, scenarioColumns)
	slices.SortStableFunc(p.scenarios, func(a, b ScenarioRow) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Title, b.Title), cmp.Compare(a.By, b.By))
	})
	for _, r := range p.scenarios {
		if r.By == "" {
			continue
		}
		fmt.Fprintf(&text, "| %d, %s | %s | %s | %s | %s | %s | %s | %s |\n", r.Number, r.Title, r.Without, r.By, r.CaughtBy, r.Also, r.with, r.Commit, r.Rests)
	}
	text.WriteString(testsHead)
	table(&text, testColumns)
	slices.SortStableFunc(p.tests, func(a, b TestRow) int { return cmp.Compare(a.Mutant, b.Mutant) })
	for _, r := range p.tests {
		fmt.Fprintf(&text, "| %s | `%s` | %s | %s | %s |\n", r.Without, r.Mutant, r.CaughtBy, r.Commit, r.Rests)
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

func table(text *strings.Builder, columns []string) {
	fmt.Fprintf(text, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}
