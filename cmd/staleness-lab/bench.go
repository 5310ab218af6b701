// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/bench"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

func newBenchCommand() *cobra.Command {
	var plan bench.Plan
	var arms []string
	var nodes, qps, repeats int
	command := &cobra.Command{
		Use:   "bench FILE|FOLDER...",
		Short: "Measure stock upstream and Fresh KCM side by side",
		Long: `Run the benchmarks that files declare on real control planes. The arms take turns on one cluster:

  U0  stock upstream, its staleness gates off
  U1  stock upstream, its defaults
  P   Fresh KCM, its gates on

The folder of --out gets the samples as JSON lines as they come, and at the end a table with the goals, Go's benchmark
format for benchstat, and PerfData for perfdash. --raw gets what is too large to be kept: every scrape of
kube-controller-manager's metrics, for recording rules, and CPU profiles.

Exit code 0 means that all was measured, whatever came out; 1 that something could not be, or, with --check, that a goal
was missed.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			benchmarks, err := spec.Load(args...)
			if err != nil {
				return err
			}
			if plan.Benchmarks, err = narrow(benchmarks, arms, nodes, qps, repeats); err != nil {
				return err
			}
			var all []controlplane.Arm
			for _, b := range plan.Benchmarks {
				all = append(all, b.Arms...)
			}
			if err := checkBinaries(all...); err != nil {
				return err
			}
			if plan.Binary != "" {
				if _, err := os.Stat(plan.Binary); err != nil {
					return fmt.Errorf("--binary: %w", err)
				}
				// It calls itself by its name, and requests are counted by that.
				if filepath.Base(plan.Binary) != "kube-controller-manager" {
					return fmt.Errorf("--binary: %s must be named kube-controller-manager, by which its requests are known", plan.Binary)
				}
			}
			plan.Command = "staleness-lab " + strings.Join(os.Args[1:], " ")
			return bench.Run(cmd.Context(), plan, display.New(os.Stdout), os.Stdout)
		},
	}
	flags := command.Flags()
	flags.StringVar(&plan.Out, "out", "", "new or empty folder for the results")
	flags.StringVar(&plan.Raw, "raw", "", "folder for scrapes and profiles (default _output/bench and the name of --out)")
	flags.IntVar(&repeats, "repeats", 0, "how often each arm is measured, in place of what the files say")
	flags.IntVar(&nodes, "nodes", 0, "number of nodes, in place of what the files say")
	flags.IntVar(&qps, "qps", 0, "requests a second of kube-controller-manager, in place of what the files say")
	flags.StringSliceVar(&arms, "arms", nil, "which arms to run, in place of what the files say; goals that need others are left out")
	flags.DurationVar(&plan.Budget, "budget", 0, "begin no round that would not end within this time (default no limit)")
	flags.StringVar(&plan.Binary, "binary", "", "kube-controller-manager of P, in place of the one that was built")
	flags.BoolVar(&plan.Profile, "profile", false, "keep a CPU profile of kube-controller-manager for each turn, and report what P takes more than the other arms")
	flags.BoolVar(&plan.Check, "check", false, "exit with 1 if a goal is missed")
	_ = command.MarkFlagRequired("out")
	command.PreRunE = func(*cobra.Command, []string) error {
		if plan.Raw == "" {
			plan.Raw = filepath.Join("_output", "bench", filepath.Base(plan.Out))
		}
		return nil
	}
	command.AddCommand(newBenchReportCommand(), newBenchCompareCommand())
	return command
}

func newBenchReportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report FOLDER",
		Short: "Rewrite the table and the other formats from a folder's samples",
		Args:  cobra.ExactArgs(1),
		RunE:  func(_ *cobra.Command, args []string) error { return bench.Report(args[0], os.Stdout) },
	}
}

func newBenchCompareCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "compare FOLDER FOLDER",
		Short: "Say whether two runs of the same benchmarks agree",
		Long: `Compare the medians of two runs of one build on one machine, arm by arm. The table shows, for each figure, where they are farthest apart, and by how much two runs differ at most.

Exit code 1 means that some are farther apart.`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return bench.Compare(args[0], args[1], os.Stdout) },
	}
}

// narrow puts the flags in place of what the files say.
func narrow(benchmarks []spec.Benchmark, arms []string, nodes, qps, repeats int) ([]spec.Benchmark, error) {
	if nodes < 0 || qps < 0 || repeats < 0 {
		return nil, errors.New("--nodes, --qps and --repeats must not be negative")
	}
	for i := range benchmarks {
		b := &benchmarks[i]
		if nodes > 0 {
			b.Nodes = nodes
		}
		if qps > 0 {
			b.QPS = qps
		}
		if repeats > 0 {
			b.Repeats = repeats
		}
		if len(arms) > 0 {
			b.Arms = slices.DeleteFunc(controlplane.Arms(), func(a controlplane.Arm) bool { return !slices.Contains(arms, string(a)) })
			b.Goals = slices.DeleteFunc(b.Goals, func(g spec.Goal) bool {
				return !slices.Contains(b.Arms, g.Of) || g.Against != "" && !slices.Contains(b.Arms, g.Against)
			})
		}
		if err := b.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
	}
	for _, name := range arms {
		if !slices.Contains(controlplane.Arms(), controlplane.Arm(name)) {
			return nil, fmt.Errorf("--arms: unknown arm %q: choose from %v", name, controlplane.Arms())
		}
	}
	return benchmarks, nil
}
