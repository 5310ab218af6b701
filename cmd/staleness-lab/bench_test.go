// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

func TestBenchMistakes(t *testing.T) {
	const good = "../../test/benchmark/ci/20-jobs.yaml"
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("nodes: x"), 0o644))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{good}, `required flag(s) "out" not set`},
		{[]string{"--out", t.TempDir()}, "requires at least 1 arg(s)"},
		{[]string{"--out", t.TempDir(), "missing.yaml"}, "missing.yaml: no such file"},
		{[]string{"--out", t.TempDir(), bad}, "bad.yaml: "},
		{[]string{"--out", t.TempDir(), good, "--arms", "U2"}, `--arms: unknown arm "U2"`},
		{[]string{"--out", t.TempDir(), good, "--nodes", "-1"}, "must not be negative"},
		{[]string{"--out", t.TempDir(), good, "--binary", "missing"}, "--binary: stat missing: no such file"},
		{[]string{"--out", t.TempDir(), good, "--binary", good}, "20-jobs.yaml must be named kube-controller-manager"},
		{[]string{"report", t.TempDir()}, "run.json: no such file"},
		{[]string{"compare", t.TempDir()}, "accepts 2 arg(s), received 1"},
		{[]string{"compare", t.TempDir(), t.TempDir()}, "run.json: no such file"},
	} {
		command := newCommand()
		command.SetArgs(append([]string{"bench"}, test.args...))
		require.ErrorContains(t, command.Execute(), test.want, "%v", test.args)
	}
}

func TestNarrow(t *testing.T) {
	all := func() []spec.Benchmark {
		b := spec.Benchmark{
			Name: "jobs", Title: "Jobs", Nodes: 3, QPS: 20, Repeats: 5, Arms: controlplane.Arms(), Workload: spec.Workload{Jobs: &spec.Jobs{Count: 1, Pods: 1}},
			Goals: []spec.Goal{{Figure: sample.Wrong, Of: "P", AtMost: new(0.0)}, {Figure: sample.End, Of: "P", Against: "U0"}, {Figure: sample.End, Of: "P", Against: "U1"}},
		}
		return []spec.Benchmark{b}
	}
	got, err := narrow(all(), nil, 0, 0, 0)
	require.NoError(t, err)
	require.Equal(t, all(), got)
	got, err = narrow(all(), []string{"P", "U1"}, 7, 100, 2)
	require.NoError(t, err)
	require.Equal(t, []controlplane.Arm{"U1", "P"}, got[0].Arms)
	require.Len(t, got[0].Goals, 2, "without the goal against U0")
	require.Equal(t, []int{7, 100, 2}, []int{got[0].Nodes, got[0].QPS, got[0].Repeats})
}
