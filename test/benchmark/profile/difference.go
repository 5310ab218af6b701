// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/pprof/profile"
)

// Difference is what one arm takes more than another in the profiled part of a turn. Times are seconds of CPU.
type Difference struct {
	// Base and Of are what the two took in all.
	Base float64 `json:"base"`
	Of   float64 `json:"of"`
	// Functions are those whose own time differs most, Packages this project's packages with all that they called.
	Functions []Row `json:"functions"`
	Packages  []Row `json:"packages"`
}

// Row is one function or package.
type Row struct {
	Name string  `json:"name"`
	Base float64 `json:"base"`
	Of   float64 `json:"of"`
}

// Compare takes the difference of two merged profiles of so many turns each, and keeps the most rows that differ most.
func Compare(base *profile.Profile, baseTurns int, of *profile.Profile, turns, most int) (Difference, error) {
	a, err := take(base, baseTurns)
	if err != nil {
		return Difference{}, fmt.Errorf("comparing profiles: %w", err)
	}
	b, err := take(of, turns)
	if err != nil {
		return Difference{}, fmt.Errorf("comparing profiles: %w", err)
	}
	return Difference{
		Base: a.total, Of: b.total,
		Functions: rows(a.flat, b.flat, most), Packages: rows(a.packages, b.packages, most),
	}, nil
}

// rows are sorted by the size of the difference, as pprof sorts them.
func rows(base, of map[string]float64, most int) []Row {
	var out []Row
	for name, seconds := range of {
		out = append(out, Row{Name: name, Base: base[name], Of: seconds})
	}
	for name, seconds := range base {
		if _, both := of[name]; !both {
			out = append(out, Row{Name: name, Base: seconds})
		}
	}
	out = slices.DeleteFunc(out, func(r Row) bool { return r.Of == r.Base })
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(abs(b.Of-b.Base), abs(a.Of-a.Base)), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), most)]
}

func abs(x float64) float64 { return max(x, -x) }
