// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/mutants"
)

// pageVariable names the page of protections, whose rows of the scenarios that were run are replaced, and
// commitVariable the commit that these name.
const (
	pageVariable   = "E2E_PROTECTION"
	commitVariable = "E2E_COMMIT"
)

// specFailed ends the verdict of a spec that did not show what it should.
const specFailed = " (spec failed)"

// writeProtection writes the rows of a run into the page.
func writeProtection(rows []row) error {
	path := os.Getenv(pageVariable)
	if path == "" {
		return nil
	}
	page, err := mutants.ReadPage(path)
	if err != nil {
		return err
	}
	for _, r := range rows {
		scenario := mutants.Scenario{Number: r.Number, Title: r.Title}
		if r.Arm == string(rig.P) {
			page.Holds(scenario, r.value("verdict"))
			continue
		}
		out := mutants.ScenarioRow{Scenario: scenario, CaughtBy: strings.Join(r.Caught, "; "), Commit: os.Getenv(commitVariable)}
		if out.Without, out.By, err = r.without(); err != nil {
			return err
		}
		if strings.HasSuffix(r.value("verdict"), specFailed) {
			out.CaughtBy = "not shown: the spec failed"
		}
		var also []string
		for _, f := range r.Figures {
			if name, ok := strings.CutPrefix(f.Name, wrong); ok && !slices.Contains(r.Caught, name) {
				also = append(also, name)
			}
		}
		out.Also = strings.Join(also, "; ")
		if out.Rests, err = out.RestsOn(filepath.Dir(filepath.Dir(path))); err != nil {
			return err
		}
		page.Add(out)
	}
	return page.Write(path)
}

// without says what an arm lacks, and how that is brought about.
func (r row) without() (protection, by string, err error) {
	switch {
	case r.Mutant != "":
		m, err := mutants.Find(r.Mutant)
		return m.Protection, fmt.Sprintf("mutant `%s`", m.Name), err
	case r.Arm == string(rig.Off0):
		return "all, and upstream's", "gates, ours and upstream's", nil
	}
	return "all", "gates", nil
}

// TestProtectionPage: docs/protection.md has just the rows of the scenarios, and each shows what it should: that the scenario goes wrong by a
// rule that it names, and holds with the protection.
func TestProtectionPage(t *testing.T) {
	if os.Getenv(progressVariable) != "" {
		t.Skip("the run of scenarios that makes rows comes before them")
	}
	page, err := mutants.ReadPage("../../docs/protection.md")
	require.NoError(t, err)
	have, shown := map[mutants.Scenario]map[string]mutants.ScenarioRow{}, map[int]bool{}
	for _, row := range page.Scenarios() {
		shown[row.Number] = true
		if have[row.Scenario] == nil {
			have[row.Scenario] = map[string]mutants.ScenarioRow{}
		}
		have[row.Scenario][row.By] = row
	}
	for _, s := range indexed {
		key := mutants.Scenario{Number: s.number, Title: s.title}
		if !shown[s.number] {
			t.Errorf("docs/protection.md has no row of scenario %d", s.number)
		}
		for _, v := range s.unprotected() {
			if v.arm == rig.P && v.mutant == "" {
				continue
			}
			_, by, err := row{Arm: string(v.arm), Mutant: v.mutant}.without()
			require.NoError(t, err)
			found, ok := have[key][by]
			run := fmt.Sprintf("run make e2e-protection FILTER='scenario:%d && %s' MUTANTS='...'", s.number, s.label)
			if !ok {
				t.Errorf("docs/protection.md lacks scenario %d, %s, without %s: %s", s.number, s.title, by, run)
				continue
			}
			if found.With() != holds {
				t.Errorf("scenario %d, %s, with its protections %q: %s", s.number, s.title, found.With(), run)
			}
			rules := strings.Split(found.CaughtBy, "; ")
			if !slices.ContainsFunc(s.rulesFor(v), func(rule string) bool {
				return slices.ContainsFunc(rules, func(caught string) bool { return strings.HasSuffix(caught, " "+rule) })
			}) {
				t.Errorf("scenario %d, %s, without %s is caught by %q, not by one of %q: %s", s.number, s.title, by, found.CaughtBy, s.rulesFor(v), run)
			}
			delete(have[key], by)
		}
		if len(have[key]) == 0 {
			delete(have, key)
		}
	}
	for key, rows := range have {
		for by := range rows {
			t.Errorf("docs/protection.md has scenario %d, %s, without %s, of which nothing is known", key.Number, key.Title, by)
		}
	}
}
