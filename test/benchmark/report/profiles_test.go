// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"testing"

	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/profile"
)

// cpuProfile is one in which functions took so many seconds by themselves.
func cpuProfile(seconds map[string]float64) *pprof.Profile {
	p := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7,
	}
	for name, s := range seconds {
		id := uint64(len(p.Function) + 1)
		f := &pprof.Function{ID: id, Name: name}
		l := &pprof.Location{ID: id, Line: []pprof.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		p.Sample = append(p.Sample, &pprof.Sample{Location: []*pprof.Location{l}, Value: []int64{int64(s * 100), int64(s * 1e9)}})
	}
	return p
}

func TestCompareProfiles(t *testing.T) {
	dir, raw := folder(t), t.TempDir()
	require.ErrorContains(t, CompareProfiles(dir, raw), "jobs-U1-1.cpu.pprof: no such file", "a turn that counts has no profile")
	const known = "github.com/fresh-kcm/fresh-kcm/pkg/freshness.Known"
	for turn, seconds := range map[string]map[string]float64{
		"jobs-U1-1": {"runtime.mallocgc": 1}, "jobs-U1-2": {"runtime.mallocgc": 3, "hardly": 0.01},
		"jobs-P-1": {"runtime.mallocgc": 2, known: 0.5}, "jobs-P-2": {"runtime.mallocgc": 3, known: 0.7},
	} {
		require.NoError(t, profile.Write(cpuProfile(seconds), filepath.Join(raw, turn+profile.Extension)))
	}
	require.NoError(t, CompareProfiles(dir, raw))
	merged, err := profile.Merge(filepath.Join(raw, "jobs-P"+profile.Extension))
	require.NoError(t, err)
	require.Len(t, merged.Sample, 2, "the profile of an arm, for pprof")
	table, err := Write(dir)
	require.NoError(t, err)
	require.Contains(t, table, `CPU profiles of the first 10 s of a turn, P (n=2) beside U1 (n=2): 3.1 s and 2 s a turn. A sample is 10 ms, so differences of a few say little.

| Package of this project, with what it calls | U1 | P | more |
|---|---|---|---|
| `+"`pkg/freshness`"+` | 0 s | 600 ms | 600 ms |

| Function, by itself | U1 | P | more |
|---|---|---|---|
| `+"`"+known+"`"+` | 0 s | 600 ms | 600 ms |
| `+"`runtime.mallocgc`"+` | 2 s | 2.5 s | 500 ms |
`)
	require.NotContains(t, table, "hardly")

	for _, turn := range []string{"jobs-P-1", "jobs-P-2"} {
		require.NoError(t, profile.Write(cpuProfile(map[string]float64{"runtime.mallocgc": 2}), filepath.Join(raw, turn+profile.Extension)))
	}
	require.NoError(t, CompareProfiles(dir, raw))
	table, err = Write(dir)
	require.NoError(t, err)
	require.Contains(t, table, "2 s and 2 s a turn. A sample is 10 ms, so differences of a few say little. No function differs by two samples")

	require.NoError(t, os.WriteFile(filepath.Join(dir, ProfilesFile), []byte("x"), 0o644))
	_, err = Write(dir)
	require.ErrorContains(t, err, "profiles.json: ")
}
