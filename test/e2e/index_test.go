// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// indexed are all scenarios, with the files that declare them.
var indexed []indexEntry

type indexEntry struct {
	scenario
	file string
}

// index notes a scenario that its caller's caller declares.
func index(s scenario) {
	_, file, _, _ := runtime.Caller(2)
	indexed = append(indexed, indexEntry{s, path.Base(file)})
}

// hurt says which arm goes wrong, and by what.
func (e indexEntry) hurt() string {
	if e.hurts == "" {
		return "no stock arm has to"
	}
	return fmt.Sprintf("%s: %s", e.hurts, strings.Join(e.rules, "; or "))
}

// gapList are the gaps as links' text.
func (e indexEntry) gapList() string {
	var gaps []string
	for _, gap := range e.gaps {
		gaps = append(gaps, fmt.Sprint(gap))
	}
	return strings.Join(gaps, ", ")
}

const indexHead = `# Scenarios

A scenario is a fault on a real control plane. Its number names what is wrong, and its rows the ways in which that is tried. *Goes
wrong* is the stock arm that must, and the rule that it breaks; [Fresh KCM](glossary.md#how-it-is-built-and-tested) must break none. *Gap* is the row of
the [track record](track-record.md). The command runs all rows of that number in the same run: *ordinary* ones run on every change,
*long* ones in ` + "`make e2e-long`" + `; ` + "`ARM=U1`" + ` or ` + "`ARM=P`" + ` chooses one arm. What was measured is in [measurements](measurements.md).
` + "`make update`" + ` writes this page from the code of ` + "`test/e2e`" + `.

| # | Scenario | Run | Goes wrong | Gap | File | Command |
|---|---|---|---|---|---|---|
`

// indexPage is docs/scenarios.md.
func indexPage(entries []indexEntry) string {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b indexEntry) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(b.label, a.label), cmp.Compare(a.file, b.file), cmp.Compare(a.title, b.title))
	})
	var page strings.Builder
	page.WriteString(indexHead)
	for _, e := range entries {
		fmt.Fprintf(&page, "| %d | %s | %s | %s | %s | [%s](../test/e2e/%s) | `make e2e FILTER='scenario:%d && %s'` |\n",
			e.number, e.title, e.label, e.hurt(), e.gapList(), e.file, e.file, e.number, e.label)
	}
	return page.String()
}

// TestScenarioIndex proves that docs/scenarios.md has every scenario. hack/update-scenarios.sh writes it.
func TestScenarioIndex(t *testing.T) {
	require.NotEmpty(t, indexed)
	requirePage(t, "scenarios.md", indexPage(indexed))
}

// requirePage proves that a page of docs is current, or writes it.
func requirePage(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", name)
	if os.Getenv("UPDATE") == "1" {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "docs/%s is not of the scenarios in test/e2e: run hack/update-scenarios.sh", name)
}
