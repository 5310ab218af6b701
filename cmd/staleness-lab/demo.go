// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/demo"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/story"
)

func newDemoCommand() *cobra.Command {
	var arms, stories []string
	var nodes int
	for _, arm := range controlplane.Arms() {
		arms = append(arms, string(arm))
	}
	for _, s := range story.All() {
		stories = append(stories, s.ID)
	}
	var about strings.Builder
	for _, s := range story.All() {
		fmt.Fprintf(&about, "\n  %s  %s", s.ID, s.Title)
	}
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show what faults do to stock upstream and to Fresh KCM",
		Long: `Run fault stories on real control planes, each with one kube-controller-manager behind a fault proxy,
and print what went wrong in one table. The arms are

  U0  stock upstream, its staleness gates off
  U1  stock upstream, its defaults
  P   Fresh KCM, its gates on

and the stories
` + about.String() + `

Exit code 0 means that the stories ran, whatever they showed of P; 1 that a fault could not be injected
or did no harm to stock upstream, so that the table proves nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodes < 1 {
				return fmt.Errorf("--nodes %d: at least one node is required", nodes)
			}
			plan, err := newPlan(arms, stories)
			if err != nil {
				return err
			}
			plan.Nodes = nodes
			if err := checkBinaries(plan.Arms...); err != nil {
				return err
			}
			return demo.Run(cmd.Context(), plan, display.New(os.Stdout), os.Stdout)
		},
	}
	flags := command.Flags()
	flags.IntVar(&nodes, "nodes", 300, "how many nodes die in story b")
	flags.StringSliceVar(&arms, "arms", arms, "which arms to run")
	flags.StringSliceVar(&stories, "story", stories, "which stories to run")
	return command
}

// newPlan keeps the stories' and arms' own order, whatever order they were asked for in.
func newPlan(arms, stories []string) (demo.Plan, error) {
	var plan demo.Plan
	var ids []string
	for _, arm := range controlplane.Arms() {
		if i := slices.Index(arms, string(arm)); i >= 0 {
			plan.Arms = append(plan.Arms, arm)
			arms = slices.DeleteFunc(slices.Clone(arms), func(s string) bool { return s == string(arm) })
		}
	}
	for _, s := range story.All() {
		ids = append(ids, s.ID)
		if slices.Contains(stories, s.ID) {
			plan.Stories = append(plan.Stories, s)
			stories = slices.DeleteFunc(slices.Clone(stories), func(id string) bool { return id == s.ID })
		}
	}
	switch {
	case len(arms) > 0:
		return plan, fmt.Errorf("--arms: unknown arm %q: choose from %v", arms[0], controlplane.Arms())
	case len(stories) > 0:
		return plan, fmt.Errorf("--story: unknown story %q: choose from %v", stories[0], ids)
	case len(plan.Arms) == 0:
		return plan, fmt.Errorf("--arms: name at least one arm")
	case len(plan.Stories) == 0:
		return plan, fmt.Errorf("--story: name at least one story")
	}
	return plan, nil
}
