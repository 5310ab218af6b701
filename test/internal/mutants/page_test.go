// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const shippedPage = root + "/docs/protection.md"

// A run of a part reads the page, and writes the rows of other parts as they were.
func TestPageIsReadAsItIsWritten(t *testing.T) {
	page, err := ReadPage(shippedPage)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, page.Write(file))
	want, err := os.ReadFile(shippedPage)
	require.NoError(t, err)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestPageReplacesRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	first, second := Scenario{2, "first"}, Scenario{10, "second, with a comma"}
	page, err := ReadPage(file)
	require.NoError(t, err)
	page.Holds(first, "holds")
	page.Add(ScenarioRow{Scenario: first, Without: "all", By: "gates", CaughtBy: "S1 a", Also: "S2 b; S3 c", Commit: "1", Rests: "11"})
	page.Add(ScenarioRow{Scenario: second, Without: "x", By: "mutant `x`", CaughtBy: "S1 a", Commit: "1", Rests: "11"})
	page.AddTest(TestRow{Without: "y", Mutant: "y", CaughtBy: "`TestY` in pkg/y", Commit: "1", Rests: "11"})
	require.NoError(t, page.Write(file))

	page, err = ReadPage(file)
	require.NoError(t, err)
	page.Holds(second, "holds")
	page.Add(ScenarioRow{Scenario: first, Without: "all", By: "gates", CaughtBy: "S1 a", Commit: "2", Rests: "22"})
	page.AddTest(TestRow{Without: "y", Mutant: "y", CaughtBy: "`TestY` in pkg/y", Commit: "2", Rests: "22"})
	page.AddTest(TestRow{Without: "a", Mutant: "a", CaughtBy: "`TestA` in pkg/a", Commit: "2", Rests: "22"})
	require.NoError(t, page.Write(file))
	page, err = ReadPage(file)
	require.NoError(t, err)
	require.Equal(t, []ScenarioRow{
		{Scenario: first, Without: "all", By: "gates", CaughtBy: "S1 a", with: "holds", Commit: "2", Rests: "22"},
		{Scenario: second, Without: "x", By: "mutant `x`", CaughtBy: "S1 a", with: "holds", Commit: "1", Rests: "11"},
	}, page.scenarios)
	require.Equal(t, []TestRow{{"a", "a", "`TestA` in pkg/a", "2", "22"}, {"y", "y", "`TestY` in pkg/y", "2", "22"}}, page.tests)
}

func TestPageOfAnotherFormIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte("| Without | Mutant | Caught by | Commit | Rests on |\n|---|---|---|---|---|\n| a | `a` | b |\n"), 0o644))
	_, err := ReadPage(file)
	require.ErrorContains(t, err, "3 cells in place of 5")
}

// What a test has to miss it was seen to miss, and nothing is told of what is no mutant any more.
func TestPageHasEveryTest(t *testing.T) {
	page, err := ReadPage(shippedPage)
	require.NoError(t, err)
	var want, got []string
	caughtBy := map[string]string{}
	for _, m := range Tests() {
		want = append(want, m.Name)
		caughtBy[m.Name] = fmt.Sprintf("`%s` in %s", m.Test, m.Package)
	}
	for _, row := range page.tests {
		got = append(got, row.Mutant)
		require.True(t, strings.HasPrefix(row.CaughtBy, caughtBy[row.Mutant]), "%s: %s", row.Mutant, row.CaughtBy) // Seeds have more to say.
	}
	require.ElementsMatch(t, want, got, "run make protection MUTANTS='...'")
	for _, row := range page.scenarios {
		if name, ok := strings.CutPrefix(row.By, "mutant "); ok {
			_, err := Find(unquoted(name))
			require.NoError(t, err)
		}
	}
}

// What a row rests on is the test, by the name without subtests, and what is edited: of upstream's code the patches that make it.
func TestRowsRestOnFiles(t *testing.T) {
	for _, m := range Tests() {
		digest, err := TestRow{Mutant: m.Name}.RestsOn(root)
		require.NoError(t, err, m.Name)
		require.Len(t, digest, 8)
	}
	page, err := ReadPage(shippedPage)
	require.NoError(t, err)
	for _, row := range page.scenarios {
		_, err := row.RestsOn(root)
		require.NoError(t, err)
	}
	files, err := sources(root, staging+"kubernetes/pkg/controller/replicaset/replica_set.go")
	require.NoError(t, err)
	require.Contains(t, files, "staging-patches/kubernetes/0004-consistency-provider.patch")
}

// Whatever a row rests on changes its digest: a file, or the edit.
func TestDigest(t *testing.T) {
	dir, seen := t.TempDir(), map[string]bool{}
	for _, content := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o644))
		for _, edit := range []Mutant{{Old: "a", New: "b"}, {Old: "a", New: "c"}} {
			sum, err := digest(dir, []string{"file", "file"}, edit)
			require.NoError(t, err)
			seen[sum] = true
		}
	}
	require.Len(t, seen, 4)
	_, err := digest(dir, []string{"gone"})
	require.Error(t, err)
}

func TestCommentsDoNotCountInADigest(t *testing.T) {
	dir := t.TempDir()
	of := func(name, content string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
		sum, err := digest(dir, []string{name})
		require.NoError(t, err)
		return sum
	}
	const code = "package p\n\nvar a = 1 // one\n"
	require.Equal(t, of("a.go", code), of("a.go", "// Package p.\npackage p\n\n/* two */ var  a=1;"))
	require.NotEqual(t, of("a.go", code), of("a.go", "package p\n\nvar a = 2 // one\n"))
	require.NotEqual(t, of("a.go", code), of("a.go", "package p\n\nvar a = `1` // one\n"))
	require.NotEqual(t, of("a.patch", code), of("a.patch", "package p\n\nvar a = 1\n"), "no Go code")
}
