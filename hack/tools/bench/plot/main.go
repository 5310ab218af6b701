// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plot draws results in Go's benchmark format: for each benchmark a picture, as SVG and PNG, of what each arm took
// of each unit, as a multiple of what the first arm took.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: plot bench.txt unit...: draws into the folder of the file")
		os.Exit(2)
	}
	if err := drawAll(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func drawAll(path string, units []string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := read(benchfmt.NewReader(f, filepath.Base(path)), units)
	if err != nil {
		return err
	}
	for _, b := range all {
		for _, format := range []string{"svg", "png"} {
			out := filepath.Join(filepath.Dir(path), strings.ToLower(b.file())+"."+format)
			if err := picture(b, out); err != nil {
				return err
			}
			fmt.Println(out)
		}
	}
	return nil
}

// benchmark is what was measured of one.
type benchmark struct {
	// name is without the arm, as in Jobs/nodes=300.
	name string
	arms []string
	// units are those that there are, values[arm][unit] what was measured.
	units  []string
	values map[string]map[string][]float64
}

func (b *benchmark) file() string {
	name, _, _ := strings.Cut(b.name, "/")
	return name
}

// read returns the benchmarks in the order of the file.
func read(lines *benchfmt.Reader, units []string) (all []*benchmark, err error) {
	for lines.Scan() {
		var result *benchfmt.Result
		switch line := lines.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, line
		case *benchfmt.Result:
			result = line
		default:
			continue
		}
		name, arm := split(string(result.Name))
		i := slices.IndexFunc(all, func(b *benchmark) bool { return b.name == name })
		if i < 0 {
			all = append(all, &benchmark{name: name, values: map[string]map[string][]float64{}})
			i = len(all) - 1
		}
		b := all[i]
		if b.values[arm] == nil {
			b.arms = append(b.arms, arm)
			b.values[arm] = map[string][]float64{}
		}
		for _, unit := range units {
			if v, ok := result.Value(unit); ok {
				b.values[arm][unit] = append(b.values[arm][unit], v)
			}
		}
	}
	for _, b := range all {
		slices.SortFunc(b.arms, func(a, b string) int { return order(a) - order(b) })
		for _, unit := range units {
			if m := median(b.values[b.arms[0]][unit]); m > 0 {
				b.units = append(b.units, unit)
			}
		}
	}
	return all, lines.Err()
}

// order puts the unprotected arms first.
func order(arm string) int { return slices.Index([]string{"U0", "U1", "P"}, arm) }

// split takes the arm out of a name.
func split(full string) (name, arm string) {
	var rest []string
	for part := range strings.SplitSeq(full, "/") {
		if value, ok := strings.CutPrefix(part, "arm="); ok {
			arm = value
		} else {
			rest = append(rest, part)
		}
	}
	return strings.Join(rest, "/"), arm
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
