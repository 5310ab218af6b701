// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The tables of claims, by the beginning of their first lines.
const (
	protectedTable = "| Controller | Its own writes |"
	measuredTable  = "| Scenario | Figure |"
	loadsTable     = "| Run | Figure |"
	virtualTable   = "| History | Figure |"
	comparedTable  = "| | upstream 1.37 | Fresh KCM |"
	gatesTable     = "| gate | default | off means |"
	// limitsSection begins the list of known limits, and untested says of one that no test shows it.
	limitsSection = "## Known limits"
	untested      = "no test"
	// protectedCells are written by hand; the last column is made from them.
	protectedCells = 5
)

var (
	scenariosNamed = regexp.MustCompile(`\((?:scenarios? )?(\d[\d, to]*)\)`)
	testsNamed     = regexp.MustCompile("`(Test\\w+)`")
	testLinked     = regexp.MustCompile(`\[(Test\w+)\]\([^)]*\)`)
	scenarioLinked = regexp.MustCompile(`\[scenario (\d+)\]\(\.\./([^)]*)\)`)
	scenarioNamed  = regexp.MustCompile(scenarioLinked.String() + `|\bscenario (\d+)\b`)
	linkToTest     = regexp.MustCompile(`\[(scenario (\d+)|Test\w+|spec "[^"]+")\]\(([^)]+_test\.go)\)`)
	filterNamed    = regexp.MustCompile(`FILTER='?([\w:-]+)`)
	runNamed       = regexp.MustCompile(`-(?:run|bench)[ =]'?\^?(\w+)`)
	targetNamed    = regexp.MustCompile(`make ([\w-]+)`)
)

// sources are the repository's tests: where each is, and the text of those in test/e2e.
type sources struct {
	tests map[string]string // file by name
	e2e   string
	make  string
}

func readSources(t *testing.T) sources {
	t.Helper()
	root := filepath.Join("..", "..")
	s := sources{tests: map[string]string{}}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
	var e2e strings.Builder
	for _, top := range []string{"cmd", "pkg", "test"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(at, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			file, err := filepath.Rel(root, at)
			for _, m := range declared.FindAllSubmatch(raw, -1) {
				s.tests[string(m[1])] = file
			}
			if path.Dir(file) == "test/e2e" {
				e2e.Write(raw)
			}
			return err
		}))
	}
	raw, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	s.e2e, s.make = e2e.String(), string(raw)
	return s
}

// filesOf returns the files of a scenario.
func filesOf(number int) []string {
	files := sets.New[string]()
	for _, e := range indexed {
		if e.number == number {
			files.Insert(path.Join("test/e2e", e.file))
		}
	}
	return sets.List(files)
}

// linksOf are links to a scenario, as from a page in docs. Which of several files is meant the links say that are there already.
func linksOf(number int, linked string) (links []string, err error) {
	files := filesOf(number)
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no scenario %d", number)
	}
	if len(files) > 1 {
		var chosen []string
		for _, m := range scenarioLinked.FindAllStringSubmatch(linked, -1) {
			if m[1] == strconv.Itoa(number) && slices.Contains(files, m[2]) {
				chosen = append(chosen, m[2])
			}
		}
		if len(chosen) == 0 {
			return nil, fmt.Errorf("scenario %d is in %s: link to what this is about", number, strings.Join(files, ", "))
		}
		files = chosen
	}
	for _, file := range files {
		links = append(links, fmt.Sprintf("[scenario %d](../%s)", number, file))
	}
	return links, nil
}

// numbers reads "1, 2, 6 to 10".
func numbers(list string) (out []int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), " to ")
		from, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		to := from
		if n, err := strconv.Atoi(last); isRange && err == nil {
			to = n
		}
		for n := from; n <= to; n++ {
			out = append(out, n)
		}
	}
	return out
}

// shown are links to the tests that some text names, as from a page in docs; linked has those that are there already.
func (s sources) shown(text, linked string) (links []string, err error) {
	var scenarios []int
	for _, m := range scenariosNamed.FindAllStringSubmatch(text, -1) {
		scenarios = append(scenarios, numbers(m[1])...)
	}
	slices.Sort(scenarios)
	for _, n := range slices.Compact(scenarios) {
		of, err := linksOf(n, linked)
		if err != nil {
			return nil, err
		}
		links = append(links, of...)
	}
	named := sets.New[string]()
	for _, m := range testsNamed.FindAllStringSubmatch(text, -1) {
		named.Insert(m[1])
	}
	if strings.Contains(text, "`test/composition`") {
		named.Insert("TestSeeds")
	}
	for _, name := range sets.List(named) {
		file, ok := s.tests[name]
		if !ok {
			return nil, fmt.Errorf("there is no %s", name)
		}
		links = append(links, fmt.Sprintf("[%s](../%s)", name, file))
	}
	return links, nil
}

// tableRows calls a function for each row of a table and puts in place what it returns.
func tableRows(page, head string, row func(cells []string) []string) (string, int) {
	lines := strings.Split(page, "\n")
	rows := 0
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], head) {
			continue
		}
		for i += 2; i < len(lines) && strings.HasPrefix(lines[i], "|"); i++ {
			cells := strings.Split(strings.Trim(lines[i], "|"), "|")
			for j := range cells {
				cells[j] = strings.TrimSpace(cells[j])
			}
			lines[i] = strings.ReplaceAll("| "+strings.Join(row(cells), " | ")+" |", "|  |", "| |")
			rows++
		}
	}
	return strings.Join(lines, "\n"), rows
}

// limits links the tests and scenarios that the known limits name, and returns what is wrong: with one that names none and does not
// say that there is none, or names one that is not there.
func (s sources) limits(page string) (linked string, problems []string) {
	before, list, found := strings.Cut(page, "\n"+limitsSection+"\n")
	if !found {
		return page, []string{"there is no section " + limitsSection}
	}
	limits := strings.Split(list, "\n- ")
	for i, limit := range limits[1:] {
		limit = testLinked.ReplaceAllString(limit, "`$1`")
		shown := strings.Contains(limit, untested) || s.commandExists(strings.Join(strings.Fields(limit), " ")) == nil
		linked := testsNamed.ReplaceAllStringFunc(limit, func(quoted string) string {
			name := strings.Trim(quoted, "`")
			if s.tests[name] == "" {
				problems = append(problems, fmt.Sprintf("known limit %.60q: there is no %s", limit, name))
			}
			shown = true
			return fmt.Sprintf("[%s](../%s)", name, s.tests[name])
		})
		linked = scenarioNamed.ReplaceAllStringFunc(linked, func(name string) string {
			m := scenarioNamed.FindStringSubmatch(name)
			n, _ := strconv.Atoi(m[1] + m[3]) // One of them is empty.
			links, err := linksOf(n, name)
			if err != nil {
				problems = append(problems, fmt.Sprintf("known limit %.60q: %v", limit, err))
				return name
			}
			shown = true
			return links[0]
		})
		if !shown {
			problems = append(problems, fmt.Sprintf("known limit %.60q names no test, and does not say that there is %s", limit, untested))
		}
		limits[i+1] = linked
	}
	return before + "\n" + limitsSection + "\n" + strings.Join(limits, "\n- "), problems
}

// commandExists says what of a command of a measured table is not there.
func (s sources) commandExists(command string) error {
	shown := false
	for _, m := range filterNamed.FindAllStringSubmatch(command, -1) {
		shown = true
		number, isScenario := strings.CutPrefix(m[1], "scenario:")
		if n, err := strconv.Atoi(number); isScenario && (err != nil || len(filesOf(n)) == 0) {
			return fmt.Errorf("there is no scenario %s", number)
		}
		label := m[1]
		if label == "benchmark" {
			continue
		}
		if !isScenario && !strings.Contains(s.e2e, `"`+label+`"`) {
			return fmt.Errorf("no spec has the label %s", label)
		}
	}
	for _, m := range runNamed.FindAllStringSubmatch(command, -1) {
		shown = true
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.tests)), func(name string) bool { return strings.Contains(name, m[1]) }) {
			return fmt.Errorf("there is no test %s", m[1])
		}
	}
	for _, m := range targetNamed.FindAllStringSubmatch(command, -1) {
		shown = true
		if !strings.Contains(s.make, "\n"+m[1]+":") {
			return fmt.Errorf("there is no make %s", m[1])
		}
	}
	if !shown {
		return fmt.Errorf("%q is no command of ours", command)
	}
	return nil
}

// TestClaims proves that each claim has a test that would fail if it were false. Claims are the rows of tables: what is
// protected (docs/status.md), whose last column is made from the scenarios and tests that the row names, and says which file of a
// scenario that has several is about the row; what was measured
// (docs/measurements.md), whose command must be one; and what upstream and Fresh KCM do, and what it means that a gate is off (README.md), whose last columns
// link to tests that must be there. And they are the known limits (docs/status.md): each names its test, or says that there is none.
// hack/update-scenarios.sh writes the made column, and the links of the limits.
func TestClaims(t *testing.T) {
	s := readSources(t)
	root := filepath.Join("..", "..")
	var problems []string
	complain := func(row []string, format string, args ...any) {
		problems = append(problems, row[0]+": "+fmt.Sprintf(format, args...))
	}
	raw, err := os.ReadFile(filepath.Join(root, "docs", "status.md"))
	require.NoError(t, err)
	want, rows := tableRows(string(raw), protectedTable, func(cells []string) []string {
		links, err := s.shown(strings.Join(cells[:min(protectedCells, len(cells))], " | "), cells[len(cells)-1])
		if err != nil {
			complain(cells, "%v", err)
		} else if len(links) == 0 {
			complain(cells, "the row names no scenario or test")
		}
		return append(slices.Clone(cells[:min(protectedCells, len(cells))]), strings.Join(links, ", "))
	})
	require.Positive(t, rows)
	measured, err := os.ReadFile(filepath.Join(root, "docs", "measurements.md"))
	require.NoError(t, err)
	for _, table := range []string{measuredTable, loadsTable, virtualTable} {
		before := 0
		_, rows = tableRows(string(measured), table, func(cells []string) []string {
			command := cells[len(cells)-1]
			if err := s.commandExists(command); err != nil {
				complain(cells, "%v", err)
			}
			if table == measuredTable {
				number, _, _ := strings.Cut(cells[0], ",")
				n, err := strconv.Atoi(number)
				if err != nil || n < before {
					complain(cells, "this row of docs/measurements.md is behind one of scenario %d: rows begin with the number of their scenario, and are in order", before)
				}
				before = n
			}
			return cells
		})
		require.Positive(t, rows, table)
	}
	want, wrong := s.limits(want)
	problems = append(problems, wrong...)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	shownByLinks := func(cells []string) []string {
		links := linkToTest.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(links) == 0 {
			complain(cells, "the row links to no test")
		}
		for _, link := range links {
			source, err := os.ReadFile(filepath.Join(root, link[3]))
			n, _ := strconv.Atoi(link[2])
			text := "func " + link[1] + "("
			if spec, ok := strings.CutPrefix(link[1], "spec "); ok {
				text = "It(" + spec + ","
			}
			if err != nil || (link[2] == "" && !bytes.Contains(source, []byte(text))) || (link[2] != "" && !slices.ContainsFunc(indexed, func(e indexEntry) bool {
				return e.number == n && path.Join("test/e2e", e.file) == link[3]
			})) {
				complain(cells, "%s is not in %s", link[1], link[3])
			}
		}
		return cells
	}
	for _, table := range []string{comparedTable, gatesTable} {
		_, rows = tableRows(string(readme), table, shownByLinks)
		require.Positive(t, rows, table)
	}
	require.Empty(t, problems, "claims without a test")
	requirePage(t, "status.md", want)
}
