// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// TestGoalsOfCI: the goals of the benchmarks of CI let a run pass that was measured (testdata/ci.jsonl, on a machine with eight
// times as much to do as it could), however long anything took, and let no P pass that asks, writes, allocates or does wrong as
// a mistake would have it.
func TestGoalsOfCI(t *testing.T) {
	benchmarks, err := spec.Load(filepath.Join("..", "ci"))
	require.NoError(t, err)
	files, err := json.Marshal(benchmarks)
	require.NoError(t, err)
	measured, err := sample.Read(filepath.Join("testdata", "ci.jsonl"))
	require.NoError(t, err)
	require.Len(t, measured, 2*len(benchmarks))
	check := func(t *testing.T, worsen func(*sample.Sample)) error {
		dir := t.TempDir()
		require.NoError(t, WriteRun(dir, sample.Run{Began: time.Now(), Benchmarks: files}))
		all, err := sample.Read(filepath.Join("testdata", "ci.jsonl"))
		require.NoError(t, err)
		for _, s := range all {
			if s.Arm == controlplane.ArmP {
				worsen(&s)
			}
			require.NoError(t, sample.Append(filepath.Join(dir, SamplesFile), s))
		}
		return Check(dir)
	}
	for _, test := range []struct {
		name   string
		worsen func(*sample.Sample)
		missed string
	}{
		{"as measured", func(*sample.Sample) {}, ""},
		{"slow", func(s *sample.Sample) {
			for _, f := range sample.Figures {
				if f.Kind == sample.Seconds {
					s.Figures[f.Name] *= 100
				}
			}
		}, ""},
		{"every write twice", func(s *sample.Sample) { s.Figures[sample.KCMWrites] *= 2 }, "3 of 12 goals were missed"},
		{"a read after every write", func(s *sample.Sample) { s.Figures[sample.KCMReads] += s.Figures[sample.KCMWrites] }, "2 of 12 goals were missed"},
		{"a live read for every dead node", func(s *sample.Sample) { s.Figures[sample.LiveReads] += 1200 }, "1 of 12 goals were missed"},
		{"5,000 allocations for every write", func(s *sample.Sample) { s.Figures[sample.KCMAllocs] += 5000 * s.Figures[sample.KCMWrites] }, "3 of 12 goals were missed"},
		{"one wrong action", func(s *sample.Sample) { s.Figures[sample.Wrong]++ }, "3 of 12 goals were missed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check(t, test.worsen)
			if test.missed == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.missed)
		})
	}
}
