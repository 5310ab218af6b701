// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package leak

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	// steady is a process that does not leak; its figures go up and down.
	steady := func(i int) Sample {
		return Sample{Goroutines: 1000 + float64(i%3)*10, Heap: 60<<20 + float64(i%2)*(5<<20), Watches: 80 + float64(i%2), Series: 4000 + float64(i%2)*40}
	}
	for name, tc := range map[string]struct {
		samples int
		change  func(i int, s *Sample)
		want    string
	}{
		"steady":                      {samples: 9},
		"steady, three":               {samples: 3},
		"goroutines":                  {samples: 9, change: func(i int, s *Sample) { s.Goroutines += float64(20 * i) }, want: "goroutines"},
		"goroutines, three":           {samples: 3, change: func(i int, s *Sample) { s.Goroutines += float64(100 * i) }, want: "goroutines"},
		"goroutines once more":        {samples: 9, change: func(i int, s *Sample) { s.Goroutines += 1000 * float64(i/4%2) }},
		"goroutines at the last only": {samples: 9, change: func(i int, s *Sample) { s.Goroutines += 1000 * float64(i/8) }},
		"heap":                        {samples: 9, change: func(i int, s *Sample) { s.Heap += float64(i) * (6 << 20) }, want: "bytes of heap"},
		"one write record in between": {samples: 9, change: func(i int, s *Sample) { s.Records = float64(i / 4 % 2) }, want: "write records"},
		"watches":                     {samples: 9, change: func(i int, s *Sample) { s.Watches += float64(i) }, want: "open watches"},
		"series":                      {samples: 9, change: func(i int, s *Sample) { s.Series += float64(30 * i) }, want: "series"},
		"fewer of all":                {samples: 9, change: func(i int, s *Sample) { s.Goroutines, s.Heap, s.Watches = s.Goroutines/2, s.Heap/2, s.Watches/2 }},
	} {
		t.Run(name, func(t *testing.T) {
			var samples []Sample
			for i := range tc.samples {
				s := steady(i)
				if tc.change != nil {
					tc.change(i, &s)
				}
				samples = append(samples, s)
			}
			found, err := Find(samples)
			require.NoError(t, err)
			if tc.want == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0], tc.want)
		})
	}
	_, err := Find([]Sample{steady(0), steady(1)})
	require.ErrorContains(t, err, "2 samples say nothing")
}
