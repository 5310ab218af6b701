// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
)

func TestCompare(t *testing.T) {
	one, err := Read(folder(t))
	require.NoError(t, err)
	for name, test := range map[string]struct {
		change func(second *Results)
		apart  []string
		shown  string
	}{
		"the same":                     {func(*Results) {}, nil, "agree"},
		"longer by less than the rest": {func(r *Results) { scale(r, sample.End, 1.3) }, nil, "agree"},
		"longer by more":               {func(r *Results) { scale(r, sample.End, 1.5) }, []string{sample.End}, "| time to the end state | 25 % and 200 ms | jobs, P | 11.7 s and 17.5 s | **apart** |"},
		"shorter by more":              {func(r *Results) { scale(r, sample.End, 0.7) }, []string{sample.End}, "| time to the end state | 25 % and 200 ms | jobs, P | 11.7 s and 8.15 s | **apart** |"},
		"wrong actions are not compared": {func(r *Results) {
			scale(r, sample.Wrong, 100)
		}, nil, "agree"},
	} {
		t.Run(name, func(t *testing.T) {
			second, err := Read(folder(t))
			require.NoError(t, err)
			test.change(&second)
			distances, err := Compare(one, second)
			require.NoError(t, err)
			var apart []string
			for _, d := range distances {
				if !d.Agrees() {
					apart = append(apart, d.Name)
				}
			}
			require.Equal(t, test.apart, apart)
			require.Contains(t, CompareTable(distances), test.shown)
		})
	}
	_, err = Compare(one, Results{})
	require.EqualError(t, err, "the two runs have no benchmark in common")
}

// scale multiplies a figure in all samples.
func scale(r *Results, figure string, by float64) {
	for _, s := range r.samples {
		if v, ok := s.Figures[figure]; ok {
			s.Figures[figure] = v * by
		}
	}
}
