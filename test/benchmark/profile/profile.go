// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/pprof/profile"
)

// Extension ends the name of a CPU profile: of a turn's, and of all turns' of an arm.
const Extension = ".cpu.pprof"

// Allocations ends the name of a profile of what a turn allocated.
const Allocations = ".allocs.pprof"

// own begins the names of this project's functions.
const own = "github.com/fresh-kcm/fresh-kcm/"

// Merge puts the profiles of one arm's turns together.
func Merge(files ...string) (*profile.Profile, error) {
	if len(files) == 0 {
		return nil, errors.New("merging profiles: there is none")
	}
	var all []*profile.Profile
	for _, file := range files {
		p, err := read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return nil, fmt.Errorf("merging profiles: %w", err)
	}
	return merged, nil
}

func read(file string) (*profile.Profile, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %s: %w", file, err)
	}
	return p, nil
}

// Write writes a profile into a file that "go tool pprof" reads.
func Write(p *profile.Profile, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	defer f.Close()
	if err := p.Write(f); err != nil {
		return fmt.Errorf("writing a profile: %s: %w", file, err)
	}
	return f.Close()
}

// Since is what the later profile of a process has more than the earlier.
func Since(earlier, later *profile.Profile) (*profile.Profile, error) {
	earlier = earlier.Copy()
	earlier.Scale(-1)
	since, err := profile.Merge([]*profile.Profile{later, earlier})
	if err != nil {
		return nil, fmt.Errorf("subtracting profiles: %w", err)
	}
	return since, nil
}

// times are the seconds of CPU of one turn.
type times struct {
	total float64
	// flat are those spent in a function itself, by its name; packages those spent in a package of this project and in
	// what it called, by its path in the checkout.
	flat, packages map[string]float64
}

// take adds up a profile of a number of turns.
func take(p *profile.Profile, turns int) (times, error) {
	cpu := -1
	for i, t := range p.SampleType {
		if t.Type == "cpu" && t.Unit == "nanoseconds" {
			cpu = i
		}
	}
	if cpu < 0 {
		return times{}, errors.New("not a CPU profile")
	}
	out := times{flat: map[string]float64{}, packages: map[string]float64{}}
	for _, s := range p.Sample {
		seconds := float64(s.Value[cpu]) / 1e9 / float64(turns)
		out.total += seconds
		names := stack(s)
		if len(names) > 0 {
			out.flat[names[0]] += seconds
		}
		seen := map[string]bool{}
		for _, name := range names {
			if pkg := ownPackage(name); pkg != "" && !seen[pkg] {
				seen[pkg] = true
				out.packages[pkg] += seconds
			}
		}
	}
	return out, nil
}

// stack returns the names of the functions of a sample, the one that ran first; functions that were inlined are in it.
func stack(s *profile.Sample) (names []string) {
	for _, location := range s.Location {
		for _, line := range location.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// ownPackage returns the path of a function's package in this checkout; empty for other functions, and for the main
// package, which is below everything.
func ownPackage(function string) string {
	path, ok := strings.CutPrefix(function, own)
	if !ok {
		return ""
	}
	slash := strings.LastIndexByte(path, '/') + 1
	dot := strings.IndexByte(path[slash:], '.')
	if dot < 0 {
		return ""
	}
	return path[:slash+dot]
}
