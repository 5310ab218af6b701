// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/onsi/ginkgo/v2"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
)

// tableVariable names a file that the table is written to besides the standard output.
const tableVariable = "E2E_TABLE"

// results are what the scenarios found, for the table at the end.
var results table

type table struct {
	mu   sync.Mutex
	rows []row
}

type row struct {
	number  int
	title   string
	arm     rig.Arm
	figures []figure
}

func (t *table) add(s scenario, arm rig.Arm, r *run, took time.Duration, failed bool) {
	figures := slices.Clone(r.figures)
	count := oracle.Count(r.violations)
	for _, name := range slices.Sorted(maps.Keys(count)) {
		figures = append(figures, figure{"! " + name, fmt.Sprint(count[name])})
	}
	verdict := "holds"
	if len(r.violations) > 0 {
		verdict = "goes wrong"
	}
	if failed {
		verdict += " (spec failed)"
	}
	figures = append([]figure{{"verdict", verdict}, {"took", took.Round(100 * time.Millisecond).String()}}, figures...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, row{s.number, s.title, arm, figures})
}

// write prints one block for each scenario: a line for each figure, a column for each arm.
func (t *table) write(out io.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var titles []string
	byTitle := map[string][]row{}
	for _, r := range t.rows {
		title := fmt.Sprintf("Scenario %d: %s", r.number, r.title)
		if r.number == 0 {
			title = r.title
		}
		if byTitle[title] == nil {
			titles = append(titles, title)
		}
		byTitle[title] = append(byTitle[title], r)
	}
	order := []rig.Arm{rig.U0, rig.U1, rig.Off, rig.P}
	for _, title := range titles {
		slices.SortStableFunc(byTitle[title], func(a, b row) int { return slices.Index(order, a.arm) - slices.Index(order, b.arm) })
		w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		fmt.Fprintf(w, "\n%s\n", title)
		var names []string
		for _, r := range byTitle[title] {
			fmt.Fprintf(w, "\t%s", r.arm)
			for _, f := range r.figures {
				if !slices.Contains(names, f.name) {
					names = append(names, f.name)
				}
			}
		}
		fmt.Fprintln(w)
		for _, name := range names {
			cells := []string{"  " + name}
			for _, r := range byTitle[title] {
				cells = append(cells, r.value(name))
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (r row) value(name string) string {
	for _, f := range r.figures {
		if f.name == name {
			return f.value
		}
	}
	return "-"
}

var _ = ginkgo.ReportAfterSuite("scenarios and arms", func(ginkgo.Report) {
	var text strings.Builder
	if err := results.write(&text); err != nil || text.Len() == 0 {
		return
	}
	fmt.Println(text.String())
	if path := os.Getenv(tableVariable); path != "" {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			fmt.Println("table:", err)
		}
	}
})
