// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

const good = `
name: nodes-die
title: all nodes die
id: B6
nodes: 300
qps: 20
lease: 20s
grace: 20s
workload:
  nodesDie: {percent: 100, observe: 1m}
goals:
- {figure: wrong-actions, atMost: 0}
- {figure: end-sec, against: U0, percent: 5}
`

func TestDecode(t *testing.T) {
	b, err := Decode([]byte(good))
	require.NoError(t, err)
	require.Equal(t, "nodes-die", b.Name)
	require.Equal(t, DefaultRepeats, b.Repeats, "by default")
	require.Equal(t, controlplane.Arms(), b.Arms, "by default")
	require.Equal(t, time.Minute, b.Workload.NodesDie.Observe.Duration)
	require.Zero(t, *b.Goals[0].AtMost)
	require.Equal(t, controlplane.ArmP, b.Goals[1].Of, "by default")
}

func TestDecodeMistakes(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"unknown field", "qps: 20", "qqs: 20", `unknown field "qqs"`},
		{"unknown field below", "percent: 100", "percents: 100", `unknown field "percents"`},
		{"field twice", "qps: 20", "qps: 20\nqps: 30", `key "qps" already set in map`},
		{"not YAML", "nodes: 300", "nodes: [", "yaml: line"},
		{"wrong type", "nodes: 300", "nodes: many", "cannot unmarshal string into Go struct field Benchmark.nodes of type int"},
		{"bad duration", "lease: 20s", "lease: 20", "lease"},
		{"name", "name: nodes-die", "name: Nodes die", "name: "},
		{"no title", "title: all nodes die", "", "title: missing"},
		{"no nodes", "nodes: 300", "nodes: 0", "nodes: 0"},
		{"no qps", "qps: 20", "qps: 0", "qps: 0"},
		{"repeats", "qps: 20", "qps: 20\nrepeats: -1", "repeats: -1"},
		{"grace too short", "grace: 20s", "grace: 9s", "grace: 9s is less than two renewals of a lease of 20s"},
		{"arm", "qps: 20", "qps: 20\narms: [U2]", `arms: there is no arm "U2"`},
		{"arm twice", "qps: 20", "qps: 20\narms: [P, P]", "arms: P is there twice"},
		{"no workload", "nodesDie: {percent: 100, observe: 1m}", "", "not 0"},
		{"two workloads", "nodesDie:", "idle: {for: 1s}\n  nodesDie:", "not 2"},
		{"percent", "percent: 100,", "percent: 101,", "percent: 101 is not from 1 to 100"},
		{"observe", ", observe: 1m", "", "observe: how long"},
		{"churn without a rollout", "nodesDie: {percent: 100, observe: 1m}", "daemonSet: {churn: 1}", "daemonSet: churn must not be negative"},
		{"negative churn", "nodesDie: {percent: 100, observe: 1m}", "daemonSet: {roll: true, churn: -1}", "daemonSet: churn must not be negative"},
		{"handover's percent", "nodesDie: {percent: 100, observe: 1m}", "handover: {percent: 100, lag: 1s}", "handover: percent: 100 is not from 1 to 99"},
		{"handover's lag", "nodesDie: {percent: 100, observe: 1m}", "handover: {percent: 50}", "handover: lag: how long"},
		{"handover with a fault", "nodesDie: {percent: 100, observe: 1m}", "handover: {percent: 50, lag: 1s}\nfault: {effect: hold, resource: pods}", "fault: a handover has"},
		{"replicas", "nodesDie: {percent: 100, observe: 1m}", "statefulSets: {count: 1}", "statefulSets: count and replicas must be 1 or more"},
		{"rounds", "qps: 20\nlease: 20s\ngrace: 20s\nworkload:\n  nodesDie: {percent: 100, observe: 1m}", "qps: 20\narms: [P]\nworkload:\n  stalls: {}", "stalls: rounds must be 1 or more"},
		{"stalls of upstream", "nodesDie: {percent: 100, observe: 1m}", "stalls: {rounds: 1}", "arms: of stalls there is only P"},
		{"stalls with a fault", "nodesDie: {percent: 100, observe: 1m}", "stalls: {rounds: 1}\nfault: {effect: hold, resource: pods}", "fault: stalls are faults"},
		{"false alarms of upstream", "figure: wrong-actions,", "figure: false-alarms, of: U1,", `arm U1 has no figure "false-alarms"`},
		{"false alarms beside a fault", "observe: 1m}\ngoals:\n- {figure: wrong-actions,", "observe: 1m}\nfault: {effect: hold, resource: pods}\ngoals:\n- {figure: false-alarms,", `goals[0]: figure: this workload has no figure "false-alarms"`},
		{"time to notice without a stall", "figure: wrong-actions,", "figure: notice-busy-p99-sec,", `goals[0]: figure: this workload has no figure "notice-busy-p99-sec"`},
		{"fault", "qps: 20", "qps: 20\nfault: {effect: drop, resource: pods}", `effect: there is no "drop"`},
		{"fault's resource", "qps: 20", "qps: 20\nfault: {effect: hold, resource: pod}", `resource: "pod" is none of`},
		{"fault without delay", "qps: 20", "qps: 20\nfault: {effect: delay, resource: pods}", "delay: goes with"},
		{"unknown figure", "figure: end-sec", "figure: end", `goals[1]: figure: this workload has no figure "end"`},
		{"figure of another workload", "nodesDie: {percent: 100, observe: 1m}", "idle: {for: 1s}", `goals[1]: figure: this workload has no figure "end-sec"`},
		{"optional figure", "figure: end-sec", "figure: handler-lag-sec", "goals[1]: figure: "},
		{"goal of no arm", "against: U0", "of: X, against: U0", "of: arm X is not measured"},
		{"goal against itself", "against: U0", "against: P", "against: arm P is not another one"},
		{"goal without a limit", "atMost: 0", "percent: 5", "one of atMost and against"},
		{"goal with two limits", "atMost: 0", "atMost: 0, percent: 5", "percent and extra go with against"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Contains(t, good, test.old)
			_, err := Decode([]byte(strings.Replace(good, test.old, test.new, 1)))
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n", "one line")
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(dir)
	require.ErrorContains(t, err, "there is no .yaml file")
	_, err = Load(filepath.Join(dir, "missing"))
	require.ErrorContains(t, err, "no such file")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.yaml"), []byte(good), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(strings.Replace(good, "nodes-die", "first", 1)), 0o644))
	all, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "nodes-die"}, []string{all[0].Name, all[1].Name})
	_, err = Load(dir, filepath.Join(dir, "a.yaml"))
	require.ErrorContains(t, err, "the name first is that of")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.yaml"), []byte("nodes: x"), 0o644))
	_, err = Load(dir)
	require.ErrorContains(t, err, "c.yaml: ")
}

// The files of this repository are right, and those of one folder that want the same nodes share a cluster.
func TestFiles(t *testing.T) {
	for folder, nodes := range map[string]int{"burst": 250, "quick": 300, "scale": 1000, "monitor": 1000, "ci": 100, "large": 5000} {
		all, err := Load(filepath.Join("..", folder))
		require.NoError(t, err)
		for _, b := range all {
			require.Equal(t, nodes, b.Nodes, "%s in %s", b.Name, folder)
			require.Equal(t, all[0].Lease, b.Lease, "%s in %s", b.Name, folder)
			require.NotEmpty(t, b.Goals, "%s in %s", b.Name, folder)
		}
	}
}

func TestSettings(t *testing.T) {
	b, err := Decode([]byte(good))
	require.NoError(t, err)
	b.LeaseGenerator = true
	require.Equal(t, "leases of 20s in place of 40s, a grace period of 20s in place of 50s, leases renewed by a generator in place of kwok", b.Settings())
	require.Empty(t, Benchmark{}.Settings())
}
