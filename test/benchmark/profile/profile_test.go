// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"path/filepath"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
)

// made is a CPU profile with a sample of so many seconds for each stack, the function that ran first.
func made(samples map[string]float64, stacks map[string][]string) *profile.Profile {
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7,
	}
	locations := map[string]*profile.Location{}
	at := func(name string) *profile.Location {
		if locations[name] == nil {
			id := uint64(len(locations) + 1)
			f := &profile.Function{ID: id, Name: name}
			locations[name] = &profile.Location{ID: id, Line: []profile.Line{{Function: f}}}
			p.Function, p.Location = append(p.Function, f), append(p.Location, locations[name])
		}
		return locations[name]
	}
	for name, seconds := range samples {
		s := &profile.Sample{Value: []int64{int64(seconds * 100), int64(seconds * 1e9)}}
		for _, function := range stacks[name] {
			s.Location = append(s.Location, at(function))
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

var stacks = map[string][]string{
	"alloc in probe": {"runtime.mallocgc", own + "pkg/freshness.(*Prover).probe.func1", own + "pkg/freshness.Known", own + "pkg/wiring.run", "main.main"},
	"alloc":          {"runtime.mallocgc", "k8s.io/kubernetes/pkg/controller/job.sync", "main.main"},
	"gone":           {"net/http.old", "main.main"},
}

func TestCompare(t *testing.T) {
	base := made(map[string]float64{"alloc": 2, "gone": 3}, stacks)
	of := made(map[string]float64{"alloc": 4, "alloc in probe": 1}, stacks)
	d, err := Compare(base, 1, of, 2, 10)
	require.NoError(t, err)
	require.Equal(t, Difference{
		Base: 5, Of: 2.5,
		Functions: []Row{{"net/http.old", 3, 0}, {"runtime.mallocgc", 2, 2.5}},
		Packages:  []Row{{"pkg/freshness", 0, 0.5}, {"pkg/wiring", 0, 0.5}},
	}, d, "of two turns half, a package once for each sample, and nothing of the main function's")
	d, err = Compare(base, 1, of, 2, 1)
	require.NoError(t, err)
	require.Equal(t, []Row{{"net/http.old", 3, 0}}, d.Functions, "the largest difference")
	d, err = Compare(base, 1, base, 1, 10)
	require.NoError(t, err)
	require.Empty(t, d.Functions, "no difference")
}

func TestMerge(t *testing.T) {
	one, two, both := filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2"), filepath.Join(t.TempDir(), "both")
	require.NoError(t, Write(made(map[string]float64{"alloc": 2}, stacks), one))
	require.NoError(t, Write(made(map[string]float64{"alloc": 1, "gone": 1}, stacks), two))
	merged, err := Merge(one, two)
	require.NoError(t, err)
	require.NoError(t, Write(merged, both))
	again, err := Merge(both)
	require.NoError(t, err)
	got, err := take(again, 1)
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"runtime.mallocgc": 3, "net/http.old": 1}, got.flat)
}

func TestMistakes(t *testing.T) {
	_, err := Merge()
	require.EqualError(t, err, "merging profiles: there is none")
	_, err = Merge(filepath.Join(t.TempDir(), "missing"))
	require.ErrorContains(t, err, "missing: no such file")
	heap := made(nil, nil)
	heap.SampleType[1].Type = "inuse_space"
	_, err = Compare(heap, 1, heap, 1, 1)
	require.EqualError(t, err, "comparing profiles: not a CPU profile")
}

func TestOwnPackage(t *testing.T) {
	for name, want := range map[string]string{
		own + "pkg/rvtracker.(*Tracker).wake":        "pkg/rvtracker",
		own + "pkg/metrics.init.0.func1":             "pkg/metrics",
		own + "cmd/kube-controller-manager.wire":     "cmd/kube-controller-manager",
		"k8s.io/client-go/tools/cache.(*Store[*]).x": "",
		"runtime.mallocgc":                           "",
	} {
		require.Equal(t, want, ownPackage(name), name)
	}
}

func TestSince(t *testing.T) {
	earlier := made(map[string]float64{"alloc": 2, "gone": 3}, stacks)
	later := made(map[string]float64{"alloc": 5, "gone": 3, "alloc in probe": 1}, stacks)
	since, err := Since(earlier, later)
	require.NoError(t, err)
	got := map[string]int64{}
	for _, s := range since.Sample {
		got[stack(s)[1]] += s.Value[1] / 1e9
	}
	require.Equal(t, map[string]int64{"k8s.io/kubernetes/pkg/controller/job.sync": 3, own + "pkg/freshness.(*Prover).probe.func1": 1}, got)
	require.Equal(t, int64(2e9), earlier.Sample[0].Value[1]+earlier.Sample[1].Value[1]-int64(3e9), "what is subtracted stays as it is")
}
