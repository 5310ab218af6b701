// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"os/exec"
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

// Kept results that make room for new ones are no change; anything else is.
func TestCommit(t *testing.T) {
	t.Chdir(t.TempDir())
	require.Empty(t, commit(t.Context(), "out"), "no checkout")
	git := func(args ...string) {
		out, err := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	require.NoError(t, os.Mkdir("out", 0o755))
	for _, file := range []string{"code", "out/samples.jsonl"} {
		require.NoError(t, os.WriteFile(file, nil, 0o644))
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	require.NoError(t, os.Remove("out/samples.jsonl"))
	require.Regexp(t, "^[0-9a-f]{12}$", commit(t.Context(), "out"))
	require.Regexp(t, "-dirty$", commit(t.Context(), "elsewhere"))
	require.Regexp(t, "-dirty$", commit(t.Context(), t.TempDir()), "a folder outside")
	require.NoError(t, os.WriteFile("code", []byte("changed"), 0o644))
	require.Regexp(t, "-dirty$", commit(t.Context(), "out"))
}
