// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leak says whether a process keeps what it no longer needs, by samples that were taken when nothing was under
// way and its work was the same each time.
package leak

import (
	"fmt"
	"slices"
	"time"
)

// Sample is what a process had at one such time.
type Sample struct {
	At time.Time
	// Goroutines is how many there were.
	Goroutines float64
	// Heap is in bytes, after a collection.
	Heap float64
	// Records is of how many objects there were records of writes.
	Records float64
	// Watches is how many were open.
	Watches float64
	// Series is how many this project's metrics had.
	Series float64
}

// MinSamples is the least that something can be said of.
const MinSamples = 3

// kinds are what may leak. What a process has at a time varies; more than the slack, or a part of what there was, is no accident.
var kinds = []struct {
	name        string
	of          func(Sample) float64
	slack, part float64
	// none: there must be none at any time.
	none bool
}{
	{name: "goroutines", of: func(s Sample) float64 { return s.Goroutines }, slack: 25, part: 0.02},
	{name: "bytes of heap", of: func(s Sample) float64 { return s.Heap }, slack: 8 << 20, part: 0.15},
	{name: "write records", of: func(s Sample) float64 { return s.Records }, none: true},
	{name: "open watches", of: func(s Sample) float64 { return s.Watches }, slack: 3},
	// Some come with the first event of their kind.
	{name: "series", of: func(s Sample) float64 { return s.Series }, slack: 50, part: 0.02},
}

// Find returns what leaks, in words. Something leaks if the least of the last third of the samples is above the most of the
// first third by more than chance; records of writes do if there is one at any of these times. It is an error to ask
// with fewer than MinSamples.
func Find(samples []Sample) ([]string, error) {
	if len(samples) < MinSamples {
		return nil, fmt.Errorf("%d samples say nothing of leaks, %d are needed", len(samples), MinSamples)
	}
	third := len(samples) / 3
	var found []string
	for _, kind := range kinds {
		values := make([]float64, len(samples))
		for i, s := range samples {
			values[i] = kind.of(s)
		}
		before, after := slices.Max(values[:third]), slices.Min(values[len(values)-third:])
		most := before + max(kind.slack, kind.part*before)
		if kind.none {
			before, most, after = 0, 0, slices.Max(values)
		}
		if after > most {
			found = append(found, fmt.Sprintf("%s: %.0f at first, %.0f at last, at most %.0f are no leak", kind.name, before, after, most))
		}
	}
	return found, nil
}
