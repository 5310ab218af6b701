// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Values are what one figure was in the repetitions of one arm.
type Values []float64

// Median is the one in the middle, of an even number the mean of the two in the middle.
func (v Values) Median() float64 {
	if len(v) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Results are the samples of a run, by benchmark.
type Results struct {
	Run        sample.Run
	Benchmarks []spec.Benchmark
	samples    []sample.Sample
	slos       map[string][]slo
	profiles   []profileDifference
}

// of returns the samples of an arm that count.
func (r Results) of(benchmark string, arm controlplane.Arm) (out []sample.Sample) {
	for _, s := range r.samples {
		if s.Benchmark == benchmark && s.Arm == arm && !s.Warmup {
			out = append(out, s)
		}
	}
	return out
}

// Values returns a figure of an arm.
func (r Results) Values(benchmark string, arm controlplane.Arm, figure string) (out Values) {
	for _, s := range r.of(benchmark, arm) {
		if v, ok := s.Figures[figure]; ok {
			out = append(out, v)
		}
	}
	return out
}

// Outcome says whether a goal was reached.
type Outcome struct {
	spec.Goal
	Benchmark spec.Benchmark
	// Got is the median, Limit what it may be; N is how many samples it has.
	Got, Limit float64
	N          int
}

// Passed says whether the goal was reached. Nothing measured is no success.
func (v Outcome) Passed() bool { return v.N > 0 && v.Got <= v.Limit }

// Limits says in words what the goal is.
func (v Outcome) Limits() string {
	f, _ := sample.Find(v.Figure)
	if v.AtMost != nil {
		return fmt.Sprintf("%s at most %s", f.Title, f.Format(*v.AtMost))
	}
	text := fmt.Sprintf("%s at most that of %s", f.Title, v.Against)
	if v.Percent != 0 {
		text += fmt.Sprintf(" and %g %%", v.Percent)
	}
	if v.Extra != 0 {
		text += " and " + f.Format(v.Extra)
	}
	return text
}

// Outcomes judges all goals, in the order of the benchmarks.
func (r Results) Outcomes() (out []Outcome) {
	for _, b := range r.Benchmarks {
		for _, g := range b.Goals {
			values := r.Values(b.Name, g.Of, g.Figure)
			v := Outcome{Goal: g, Benchmark: b, Got: values.Median(), N: len(values)}
			if g.AtMost != nil {
				v.Limit = *g.AtMost
			} else {
				against := r.Values(b.Name, g.Against, g.Figure)
				v.Limit = against.Median()*(1+g.Percent/100) + g.Extra
				v.N = min(v.N, len(against))
			}
			out = append(out, v)
		}
	}
	return out
}

// Difference is a kind of request of which two arms make different numbers.
type Difference struct {
	Kind string
	// Medians are those of the arms, in the benchmark's order.
	Medians []float64
}

// Differences returns the kinds of requests of which the arms' medians are not all the same, the largest differences first.
func (r Results) Differences(b spec.Benchmark) (out []Difference) {
	byArm := map[controlplane.Arm]map[string]Values{}
	kinds := map[string]bool{}
	for _, arm := range b.Arms {
		byArm[arm] = map[string]Values{}
		for _, s := range r.of(b.Name, arm) {
			for kind := range s.KCMCalls {
				kinds[kind] = true
			}
		}
	}
	for kind := range kinds {
		d := Difference{Kind: kind}
		for _, arm := range b.Arms {
			var values Values
			for _, s := range r.of(b.Name, arm) {
				values = append(values, float64(s.KCMCalls[kind]))
			}
			d.Medians = append(d.Medians, values.Median())
		}
		if slices.Max(d.Medians) > slices.Min(d.Medians) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(b.spread(), a.spread()), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

func (d Difference) spread() float64 { return slices.Max(d.Medians) - slices.Min(d.Medians) }
