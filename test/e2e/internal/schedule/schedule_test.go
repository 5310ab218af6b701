// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestASeedMakesOneSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		length := time.Duration(rapid.IntRange(10, 300).Draw(t, "seconds")) * time.Second
		s := Random(seed, length)
		require.Equal(t, s, Random(seed, length))
		require.True(t, slices.IsSortedFunc(s.Steps, func(a, b Step) int { return int(a.At - b.At) }))
		require.LessOrEqual(t, s.End(), length+maxFault)
		for _, step := range s.Steps {
			require.Equal(t, step.Action == Fault, step.Resource != "" && step.Effect != "" && step.For >= minFault, "%s", step)
		}
	})
	require.NotEqual(t, Random(1, time.Minute).Steps, Random(2, time.Minute).Steps)
}

func TestAScheduleSurvivesItsFile(t *testing.T) {
	s := Random(7, time.Minute)
	path := filepath.Join(t.TempDir(), "schedule.json")
	require.NoError(t, s.Save(path))
	loaded, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, s, loaded)
	_, err = Load(path + ".none")
	require.ErrorContains(t, err, "reading a schedule")
}

func TestShrinkFindsTheCulprits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Random(rapid.Uint64().Draw(t, "seed"), 2*time.Minute)
		// It fails as long as all culprits are in it.
		culprits := rapid.SliceOfNDistinct(rapid.SampledFrom(s.Steps), 1, 3, func(step Step) string { return step.String() }).Draw(t, "culprits")
		fails := func(s Schedule) bool {
			return !slices.ContainsFunc(culprits, func(c Step) bool { return !slices.Contains(s.Steps, c) })
		}
		short := s.Shrink(math.MaxInt, fails)
		require.True(t, fails(short))
		for i := range short.Steps {
			shorter := short
			shorter.Steps = slices.Delete(slices.Clone(short.Steps), i, i+1)
			require.False(t, fails(shorter), "no step can be left out")
		}
		calls := 0
		limited := s.Shrink(5, func(s Schedule) bool { calls++; return fails(s) })
		require.LessOrEqual(t, calls, 5)
		require.True(t, fails(limited))
	})
}
