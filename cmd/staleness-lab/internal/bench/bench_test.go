// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/run"
)

func TestBoard(t *testing.T) {
	b := newBoard()
	require.Empty(t, b.snapshot(b.begin).Facts(), "nothing has begun")
	b.set(run.Progress{Done: 3, Turns: 6, Turn: "jobs, arm P, round 1 of 3", What: "running 50 Jobs of 2 pods"})
	v := b.snapshot(b.begin.Add(65 * time.Second))
	lines := v.Lines(80)
	require.Equal(t, "Benchmarks [===============               ] 3 of 6 turns, 1:05", lines[0].Text)
	require.Equal(t, "jobs, arm P, round 1 of 3: running 50 Jobs of 2 pods", lines[1].Text)
	require.Equal(t, "3 of 6 turns done; jobs, arm P, round 1 of 3", v.Facts()[0].Text, "details are not for a pipe")
}

func TestMakeEmpty(t *testing.T) {
	out, raw := filepath.Join(t.TempDir(), "a", "out"), filepath.Join(t.TempDir(), "raw")
	require.NoError(t, makeEmpty(out, raw))
	require.NoError(t, makeEmpty(out, raw), "there, but empty")
	require.NoError(t, os.WriteFile(filepath.Join(out, "samples.jsonl"), nil, 0o644))
	require.ErrorContains(t, makeEmpty(out, raw), "is not empty")
}
