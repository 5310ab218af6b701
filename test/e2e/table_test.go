// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onsi/ginkgo/v2"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

// tableVariable names a file that the table is written to besides the standard output.
const tableVariable = "E2E_TABLE"

// rowEntry names the report entries that hold rows. Specs run in several processes, and only the first of them
// reports at the end.
const rowEntry = "row of the table"

// row is what a scenario found on one arm.
type row struct {
	Number  int
	Title   string
	Arm     string
	Mutant  string   // what P was without, if that
	Caught  []string // the rules that it was to go wrong by, and did
	Figures []figure
}

// figure is one cell of the table.
type figure struct{ Name, Value string }

// wrong begins the name of a figure that counts violations.
const wrong = "! "

// report adds a row to the running spec's report.
func (s scenario) report(v variant, r *run, took time.Duration, failed bool) {
	figures := slices.Clone(r.figures)
	count := oracle.Count(r.violations)
	for _, name := range slices.Sorted(maps.Keys(count)) {
		figures = append(figures, figure{wrong + name, fmt.Sprint(count[name])})
	}
	verdict := "holds"
	if len(r.violations) > 0 {
		verdict = "goes wrong"
	}
	if failed {
		verdict += specFailed
	}
	figures = append([]figure{{"verdict", verdict}, {"took", took.Round(100 * time.Millisecond).String()}}, figures...)
	ginkgo.AddReportEntry(rowEntry, row{
		Number: s.number, Title: s.title, Arm: v.String(), Mutant: v.mutant, Caught: s.caughtBy(v, r.violations), Figures: figures,
	}, ginkgo.ReportEntryVisibilityNever)
}

// rowsOf reads the rows out of all specs' reports, ordered by scenario: specs end in any order.
func rowsOf(report ginkgo.Report) ([]row, error) {
	var rows []row
	for _, spec := range report.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name != rowEntry {
				continue
			}
			// An entry of another process is here as JSON only.
			data, err := json.Marshal(entry.GetRawValue())
			if err != nil {
				return nil, err
			}
			var r row
			if err := json.Unmarshal(data, &r); err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	sortRows(rows)
	return rows, nil
}

// sortRows orders rows by scenario and arm.
func sortRows(rows []row) {
	// What is in no such order, P without something, comes last.
	order := []rig.Arm{rig.P, rig.Off, rig.Off0, rig.U1, rig.U0}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Title, b.Title),
			slices.Index(order, rig.Arm(b.Arm))-slices.Index(order, rig.Arm(a.Arm)), cmp.Compare(a.Arm, b.Arm))
	})
}

// writeTable prints one block for each scenario: a line for each figure, a column for each arm.
func writeTable(out io.Writer, rows []row) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Title == rows[0].Title && rows[n].Number == rows[0].Number {
			n++
		}
		if err := writeBlock(out, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func writeBlock(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	title := rows[0].Title
	if rows[0].Number != 0 {
		title = fmt.Sprintf("Scenario %d: %s", rows[0].Number, title)
	}
	fmt.Fprintf(w, "\n%s\n", title)
	var names []string
	for _, r := range rows {
		fmt.Fprintf(w, "\t%s", r.Arm)
		for _, f := range r.Figures {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	fmt.Fprintln(w)
	for _, name := range names {
		cells := []string{"  " + name}
		for _, r := range rows {
			cells = append(cells, r.value(name))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

func (r row) value(name string) string {
	for _, f := range r.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	return "-"
}

var _ = ginkgo.ReportAfterSuite("scenarios and arms", func(report ginkgo.Report) {
	rows, err := rowsOf(report)
	var text strings.Builder
	if err = errors.Join(err, writeTable(&text, rows), writeProtection(rows)); err != nil {
		ginkgo.Fail("table: " + err.Error())
	}
	if text.Len() == 0 {
		return
	}
	say(text.String())
	if path := os.Getenv(tableVariable); path != "" {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			ginkgo.Fail("table: " + err.Error())
		}
	}
})
