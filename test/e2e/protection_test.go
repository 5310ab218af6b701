// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"

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
