// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kept counts what a process keeps: the heap, the goroutines, the series of its metrics, and the entries of
// every map, slice, channel and context that can be reached from its parts, whatever packages they are in, with
// the values of the atomic.Int32s among them, which count something. What is kept
// in a closure alone, or in a variable of a package, shows on the heap only.
package kept

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Project is the prefix of this project's own names in Counts.
const Project = "fresh-kcm/pkg/"

// Counts are numbers of entries, by where they are kept: type and field.
type Counts map[string]int

// Snapshot is what a process keeps at one time.
type Snapshot struct {
	// Heap is in bytes, after a collection.
	Heap       uint64
	Goroutines int
	// Series are those of the process's registry, by metric, as count counts them; Entries are what can be reached from the parts.
	Series, Entries Counts
}

// Take looks at the process, and at all that can be reached from parts. Nothing of it may change meanwhile.
func Take(parts ...any) (Snapshot, error) {
	s := Snapshot{Entries: Entries(parts...), Series: Counts{}}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return s, fmt.Errorf("gathering the metrics: %w", err)
	}
	for _, f := range families {
		s.Series[f.GetName()] = count(f)
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.Heap, s.Goroutines = m.HeapAlloc, runtime.NumGoroutine()
	return s, nil
}

// happened are the labels that say how a thing went. A series of one comes when that happens for the first time, perhaps
// late, and is no leak.
var happened = sets.New("outcome", "result", "reason", "cause", "origin", "by")

// words is how many values a label of happened may have. More are no words of a vocabulary.
const words = 16

// count is the number of series that differ in more than in how a thing went, and of the values beyond words that say so.
func count(f *dto.MetricFamily) int {
	of, how := sets.New[string](), map[string]sets.Set[string]{}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			if happened.Has(l.GetName()) {
				if how[l.GetName()] == nil {
					how[l.GetName()] = sets.New[string]()
				}
				how[l.GetName()].Insert(l.GetValue())
			} else {
				labels = append(labels, l.String())
			}
		}
		of.Insert(strings.Join(labels, ","))
	}
	n := len(of)
	for _, values := range how {
		n += max(0, len(values)-words)
	}
	return n
}

// Sum is the number of all entries whose name begins so.
func (c Counts) Sum(prefix string) (sum int) {
	for name, n := range c {
		if strings.HasPrefix(name, prefix) {
			sum += n
		}
	}
	return sum
}

// Over is by how much there is more than in before, by name, where there is.
func (c Counts) Over(before Counts) Counts {
	over := Counts{}
	for name, n := range c {
		if n > before[name] {
			over[name] = n - before[name]
		}
	}
	return over
}

// Raise has the counts be at least those of now.
func (c Counts) Raise(now Counts) {
	for name, n := range now {
		c[name] = max(c[name], n)
	}
}

func (c Counts) String() string {
	var lines []string
	for name, n := range c {
		lines = append(lines, fmt.Sprintf("%s: %d", name, n))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}
