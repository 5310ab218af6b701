// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command age says which rows of docs/protection.md are no longer of this tree: whose commit is not in the history, as after a
// rebase, or since whose commit what they rest on has changed: the file that the mutant edits, and the scenario or test. What else
// has changed of the product it does not look at. Oldest first, each with the command that makes it again.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/test/internal/mutants"
)

const (
	page    = "docs/protection.md"
	changed = " with changes"
)

// old is a row that is no longer of this tree.
type old struct {
	date, commit, what, why, command string
}

func main() {
	rows, all, err := find()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, row := range rows {
		fmt.Printf("%s %s: %s\n  %s\n  %s\n", row.date, row.commit, row.what, row.why, row.command)
	}
	fmt.Printf("%d of %d rows of %s are older than what they rest on\n", len(rows), all, page)
}

func find() (rows []old, all int, err error) {
	p, err := mutants.ReadPage(page)
	if err != nil {
		return nil, 0, err
	}
	files, err := scenarioFiles()
	if err != nil {
		return nil, 0, err
	}
	for _, row := range p.Scenarios() {
		all++
		on, selected := files[row.Scenario], fmt.Sprintf("make e2e-protection FILTER='scenario:%d'", row.Number)
		if name, ok := strings.CutPrefix(row.By, "mutant "); ok {
			m, err := mutants.Find(strings.Trim(name, "`"))
			if err != nil {
				return nil, 0, err
			}
			for _, file := range m.Files() {
				on = append(on, source(file)...)
			}
			selected = fmt.Sprintf("make e2e-protection FILTER='scenario:%d && mutant:%s' MUTANTS=%s", row.Number, m.Name, m.Name)
		}
		if aged := age(row.Commit, on); aged != nil {
			aged.what, aged.command = fmt.Sprintf("scenario %d, %s, without %s", row.Number, row.Title, row.By), selected
			rows = append(rows, *aged)
		}
	}
	edits := map[string]mutants.Mutant{}
	for _, m := range mutants.Tests() {
		edits[m.Name] = m.Mutant
	}
	for _, row := range p.Tests() {
		all++
		var on []string
		for _, file := range edits[row.Mutant].Files() {
			on = append(on, source(file)...)
		}
		if _, folder, ok := strings.Cut(row.CaughtBy, " in "); ok {
			folder, _, _ = strings.Cut(folder, ",")
			on = append(on, folder+"/*_test.go")
		}
		if aged := age(row.Commit, on); aged != nil {
			aged.what, aged.command = "test of "+row.Mutant, "make protection MUTANTS="+row.Mutant
			rows = append(rows, *aged)
		}
	}
	slices.SortStableFunc(rows, func(a, b old) int { return strings.Compare(a.date, b.date) })
	return rows, all, nil
}

// scenarioFiles reads docs/scenarios.md, which is of the code.
func scenarioFiles() (map[mutants.Scenario][]string, error) {
	text, err := os.ReadFile("docs/scenarios.md")
	if err != nil {
		return nil, err
	}
	out := map[mutants.Scenario][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		s := mutants.Scenario{}
		if len(cells) < 6 {
			continue
		}
		if _, err := fmt.Sscanf(cells[0], "| %d", &s.Number); err != nil {
			continue
		}
		s.Title = cells[1]
		_, file, _ := strings.Cut(cells[5], "](../")
		out[s] = []string{strings.TrimSuffix(file, ")")}
	}
	return out, nil
}

// source is where a file comes from that is edited: one of upstream's is made by a patch.
func source(file string) []string {
	if module, inside, ok := strings.Cut(strings.TrimPrefix(file, "_output/staging/"), "/"); ok && strings.HasPrefix(file, "_output/staging/") {
		patches, err := exec.Command("grep", "-rlE", `^\+\+\+ b/`+inside+`$`, "staging-patches/"+module).Output()
		if err == nil {
			return strings.Fields(string(patches))
		}
		return []string{path.Join("staging-patches", module, "_files", inside)}
	}
	return []string{file}
}

// age returns nil if the commit is in the history and none of the files has changed since.
func age(commit string, files []string) *old {
	commit, dirty := strings.CutSuffix(commit, changed)
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if _, err := git("merge-base", "--is-ancestor", commit, "HEAD"); err != nil {
		return &old{date: "0000-00-00 00:00", commit: commit, why: "its commit is not in the history"}
	}
	date, _ := git("log", "-1", "--format=%cd", "--date=format:%Y-%m-%d %H:%M", commit)
	if dirty {
		return &old{date: date, commit: commit, why: "it was made with changes that were not committed"}
	}
	if touched, err := git(append([]string{"diff", "--name-only", commit, "HEAD", "--"}, files...)...); err != nil || touched != "" {
		return &old{date: date, commit: commit, why: "changed since: " + strings.Join(strings.Fields(touched), ", ")}
	}
	return nil
}
