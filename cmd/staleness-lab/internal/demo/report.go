// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/story"
)

// Results are what was measured, by story and arm.
type Results map[string]map[controlplane.Arm]story.Result

// WriteReport prints the table and what is needed to read it. Every story and arm of the plan has a result.
func WriteReport(w io.Writer, plan Plan, results Results) error {
	header := []string{"STORY", "FIGURE"}
	for _, arm := range plan.Arms {
		header = append(header, string(arm))
	}
	rows := [][]string{header}
	for _, s := range plan.Stories {
		rows = append(rows, storyRows(s, plan.Arms, results[s.ID])...)
	}
	var b strings.Builder
	b.WriteString("\n")
	for _, line := range display.Table(rows) {
		b.WriteString(line + "\n")
	}
	for _, s := range plan.Stories {
		b.WriteString("\n")
		paragraph(&b, s.ID+":", s.Title+".")
		paragraph(&b, "  ", s.Correct)
		paragraph(&b, "  ", "Run with: "+s.Settings(story.Options{Nodes: plan.Nodes})+".")
	}
	b.WriteString("\n")
	for _, arm := range plan.Arms {
		kcm := results[plan.Stories[0].ID][arm].Subject()
		paragraph(&b, fmt.Sprintf("%-2s =", arm), fmt.Sprintf("kube-controller-manager %s; staleness gates on: %s; off: %s",
			kcm.Version, listed(kcm.GatesOn), listed(kcm.GatesOff)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// paragraph breaks a text into lines of a width that is easy to read and to paste.
func paragraph(b *strings.Builder, label, text string) {
	for _, line := range display.Wrap(label+" ", strings.Fields(text), 100) {
		b.WriteString(line + "\n")
	}
}

// storyRows has one row for each figure and one for the outcome.
func storyRows(s story.Story, arms []controlplane.Arm, results map[controlplane.Arm]story.Result) [][]string {
	var rows [][]string
	for i, figure := range results[arms[0]].Figures() {
		row := []string{s.ID, figure.Name}
		for _, arm := range arms {
			f := results[arm].Figures()[i]
			row = append(row, strings.TrimSpace(f.Value+"  "+f.Outcome.String()))
		}
		rows = append(rows, row)
	}
	outcome := []string{s.ID, "outcome"}
	for _, arm := range arms {
		if story.IsWrong(results[arm]) {
			outcome = append(outcome, story.Wrong.String())
		} else {
			outcome = append(outcome, story.Right.String())
		}
	}
	return append(rows, outcome)
}

// listed shortens a list of gates, most of which share a long name.
func listed(gates []string) string {
	if len(gates) == 0 {
		return "none"
	}
	const family = "StaleControllerConsistency"
	var short, members []string
	for _, g := range gates {
		if member, ok := strings.CutPrefix(g, family); ok && member != "" {
			members = append(members, member)
		} else {
			short = append(short, g)
		}
	}
	if len(members) > 0 {
		short = append(short, family+"{"+strings.Join(members, ", ")+"}")
	}
	return strings.Join(short, " ")
}
