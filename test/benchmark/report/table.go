// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
)

// Table writes all as Markdown: on what it was measured, the goals, and for each benchmark its figures and the requests
// that the arms do not have in common, wrong actions, SLOs and differences of CPU profiles.
func (r Results) Table() string {
	var out strings.Builder
	r.origin(&out)
	r.goals(&out)
	for _, b := range r.Benchmarks {
		r.figures(&out, b)
		r.differences(&out, b)
		r.wrong(&out, b)
		r.sloTable(&out, b)
		r.profileTables(&out, b)
	}
	return out.String()
}

func (r Results) origin(out *strings.Builder) {
	run, m := r.Run, r.Run.Machine
	fmt.Fprintf(out, "Measured on %s in %v on %s, %d cores, %.0f GiB, %s, load average %.1f before, at commit %s, with\n\n    %s\n\n",
		run.Began.Format(time.RFC3339), run.Took, m.CPU, m.Cores, float64(m.Memory)/(1<<30), m.Kernel, m.Load, run.Commit, run.Command)
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(run.Versions)) {
		versions = append(versions, name+" "+run.Versions[name])
	}
	fmt.Fprintf(out, "Versions: %s. etcd did not fsync.\n", strings.Join(versions, ", "))
	if run.Stopped != "" {
		fmt.Fprintf(out, "\nNot every repetition was made: %s.\n", run.Stopped)
	}
}

func (r Results) goals(out *strings.Builder) {
	all := r.Outcomes()
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(out, "\n| Benchmark | Goal for P | Limit | P | |\n|---|---|---|---|---|\n")
	for _, v := range all {
		f, _ := sample.Find(v.Figure)
		outcome, got := "passed", f.Format(v.Got)
		switch {
		case v.N == 0:
			outcome, got = "**not measured**", "-"
		case !v.Passed():
			outcome = "**missed**"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", title(v.Benchmark), v.Limits(), f.Format(v.Limit), got, outcome)
	}
}

// title is the benchmark's, with its number among the goals.
func title(b spec.Benchmark) string {
	if b.ID == "" {
		return b.Title
	}
	return b.ID + ": " + b.Title
}

// figures shows medians, and least and most where they differ.
func (r Results) figures(out *strings.Builder, b spec.Benchmark) {
	settings := ""
	if s := b.Settings(); s != "" {
		settings = "; " + s
	}
	fmt.Fprintf(out, "\n**%s** (%d nodes, %d requests a second at most%s)\n\n|", title(b), b.Nodes, b.QPS, settings)
	for _, arm := range b.Arms {
		fmt.Fprintf(out, " | %s, n=%d", arm, len(r.of(b.Name, arm)))
	}
	fmt.Fprintf(out, " |\n|---%s|\n", strings.Repeat("|---", len(b.Arms)))
	for _, f := range sample.Figures {
		var cells []string
		some := false
		for _, arm := range b.Arms {
			values := r.Values(b.Name, arm, f.Name)
			if len(values) == 0 {
				cells = append(cells, "-")
				continue
			}
			some = true
			cell := f.Format(values.Median())
			if low, high := f.Format(slices.Min(values)), f.Format(slices.Max(values)); low != high {
				if unit(low) == unit(high) {
					low = strings.TrimSuffix(low, unit(low))
				}
				cell += fmt.Sprintf(" (%s to %s)", low, high)
			}
			cells = append(cells, cell)
		}
		if some {
			fmt.Fprintf(out, "| %s | %s |\n", f.Title, strings.Join(cells, " | "))
		}
	}
}

// unit is what follows the number.
func unit(formatted string) string {
	if i := strings.IndexByte(formatted, ' '); i >= 0 {
		return formatted[i:]
	}
	return ""
}

// differences shows where additional requests come from.
func (r Results) differences(out *strings.Builder, b spec.Benchmark) {
	all := r.Differences(b)
	if len(all) == 0 || len(b.Arms) < 2 {
		return
	}
	const most = 12
	rest := max(0, len(all)-most)
	fmt.Fprintf(out, "\nRequests of kube-controller-manager of which the arms make different numbers (medians):\n\n|")
	for _, arm := range b.Arms {
		fmt.Fprintf(out, " | %s", arm)
	}
	fmt.Fprintf(out, " |\n|---%s|\n", strings.Repeat("|---", len(b.Arms)))
	for _, d := range all[:len(all)-rest] {
		fmt.Fprintf(out, "| %s", d.Kind)
		for _, m := range d.Medians {
			fmt.Fprintf(out, " | %s", sample.Figure{}.Format(m))
		}
		fmt.Fprintf(out, " |\n")
	}
	if rest > 0 {
		fmt.Fprintf(out, "\n%d kinds more differ by %s at most.\n", rest, sample.Figure{}.Format(all[most].spread()))
	}
}

// wrong says which wrong actions there were.
func (r Results) wrong(out *strings.Builder, b spec.Benchmark) {
	for _, arm := range b.Arms {
		sum := map[string]int{}
		for _, s := range r.of(b.Name, arm) {
			for rule, n := range s.Wrong {
				sum[rule] += n
			}
		}
		if len(sum) == 0 {
			continue
		}
		var rules []string
		for _, rule := range slices.Sorted(maps.Keys(sum)) {
			rules = append(rules, fmt.Sprintf("%s: %d", rule, sum[rule]))
		}
		fmt.Fprintf(out, "\nWrong actions of %s in all repetitions: %s.\n", arm, strings.Join(rules, ", "))
	}
}
