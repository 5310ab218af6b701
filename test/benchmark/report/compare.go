// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
)

// Distance is how far the medians of one figure are apart in two runs, where they are farthest apart.
type Distance struct {
	sample.Figure
	// Benchmark and Arm are where that is, First and Second the medians.
	Benchmark, Arm string
	First, Second  float64
}

// Agrees reports whether two runs of one build on one machine may differ so.
func (d Distance) Agrees() bool { return d.share() <= 1 }

// share is how far the medians are apart, as a part of how far they may be.
func (d Distance) share() float64 {
	if d.First == d.Second {
		return 0
	}
	return math.Abs(d.First-d.Second) / (d.Spread*max(d.First, d.Second) + d.Slack)
}

// Compare returns, for each figure that has a spread, where two runs are farthest apart. It is an error if they have no benchmark in common.
func Compare(first, second Results) ([]Distance, error) {
	var out []Distance
	for _, f := range sample.Figures {
		if f.Spread == 0 && f.Slack == 0 {
			continue
		}
		var all []Distance
		for _, b := range first.Benchmarks {
			for _, arm := range b.Arms {
				one, other := first.Values(b.Name, arm, f.Name), second.Values(b.Name, arm, f.Name)
				if len(one) > 0 && len(other) > 0 {
					all = append(all, Distance{Figure: f, Benchmark: b.Name, Arm: string(arm), First: one.Median(), Second: other.Median()})
				}
			}
		}
		if len(all) > 0 {
			out = append(out, slices.MaxFunc(all, func(a, b Distance) int { return cmp.Compare(a.share(), b.share()) }))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the two runs have no benchmark in common")
	}
	return out, nil
}

// CompareTable writes them as Markdown.
func CompareTable(distances []Distance) string {
	var out strings.Builder
	out.WriteString("| Figure | Two runs differ by at most | Farthest apart | Medians | |\n|---|---|---|---|---|\n")
	for _, d := range distances {
		outcome := "agree"
		if !d.Agrees() {
			outcome = "**apart**"
		}
		fmt.Fprintf(&out, "| %s | %s | %s, %s | %s and %s | %s |\n", d.Title, d.spread(), d.Benchmark, d.Arm, d.Format(d.First), d.Format(d.Second), outcome)
	}
	return out.String()
}

func (d Distance) spread() string {
	var parts []string
	if d.Spread > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %%", 100*d.Spread))
	}
	if d.Slack > 0 {
		parts = append(parts, d.Format(d.Slack))
	}
	return strings.Join(parts, " and ")
}
