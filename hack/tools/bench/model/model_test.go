// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kept writes a folder of results of a cluster whose cost is known: 200 MiB and 0.05 for each node and 0.02 for each pod, 5
// requests a second and one for each renewal and three for each write, 0.01 cores and 0.0001 for each renewal and 0.002 for
// each write and 0.00001 for each node that a sync of a DaemonSet looks at. All of it is off by up to a share.
func kept(t *testing.T, nodes int, off float64) string {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(nodes)))
	noise := func() float64 { return 1 + off*(2*random.Float64()-1) }
	dir := t.TempDir()
	run := fmt.Sprintf(`{"benchmarks": [
  {"name": "deployments", "nodes": %[1]d, "lease": "20s", "workload": {"deployments": {"count": 10, "replicas": 20}}},
  {"name": "jobs", "nodes": %[1]d, "lease": "0s", "workload": {"jobs": {"count": 10, "pods": 5}}},
  {"name": "daemonset-create", "nodes": %[1]d, "workload": {"daemonSet": {}}},
  {"name": "roll-delayed", "nodes": %[1]d, "workload": {"daemonSet": {"roll": true}}, "fault": {"effect": "delay"}},
  {"name": "nodes-die", "nodes": %[1]d, "workload": {"nodesDie": {"percent": 1}}},
  {"name": "handover", "nodes": %[1]d, "workload": {"handover": {"percent": 50}}},
  {"name": "idle", "nodes": %[1]d, "workload": {"idle": {"for": "1m"}}}]}`, nodes)
	var samples strings.Builder
	for _, s := range []struct {
		benchmark string
		renewals  float64
		pods      int
		writes    float64
		statuses  float64 // of a DaemonSet
	}{
		{"deployments", float64(nodes) / 5, 200, 100, 0}, {"jobs", float64(nodes) / 10, 50, 20, 0}, {"daemonset-create", float64(nodes) / 10, nodes, 50, 4},
		{"idle", float64(nodes) / 10, 0, 0, 0},
	} {
		for range 3 {
			mib := (200 + 0.05*float64(nodes) + 0.02*float64(s.pods)) * noise()
			requests := (5 + s.renewals + 3*s.writes) * noise()
			cores := (0.01 + 0.0001*s.renewals + 0.002*s.writes + 0.00001*s.statuses*float64(nodes)) * noise()
			fmt.Fprintf(&samples, `{"benchmark": %q, "arm": "P", "seconds": 10, "figures": {"kcm-writes": %g, "kcm-caches": 61, "api-calls": %g, "kcm-cpu-sec": %g, "kcm-rss-B": %g}, "kcmCalls": {"update daemonsets/status": %g}}`+"\n",
				s.benchmark, 10*s.writes, 10*requests, 10*cores, mib*(1<<20), 10*s.statuses)
		}
	}
	samples.WriteString(`{"benchmark": "jobs", "arm": "P", "warmup": true, "seconds": 10, "figures": {"kcm-rss-B": 1e12}}
{"benchmark": "roll-delayed", "arm": "P", "seconds": 10, "figures": {"kcm-rss-B": 1e12}}
{"benchmark": "nodes-die", "arm": "P", "seconds": 10, "figures": {"kcm-rss-B": 1e12}}
{"benchmark": "handover", "arm": "P", "seconds": 10, "figures": {"kcm-rss-B": 1e12}}
`)
	for name, content := range map[string]string{"run.json": run, "samples.jsonl": samples.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRecovers: from results whose cost is known the fit gets it back, whatever size is left out.
func TestRecovers(t *testing.T) {
	var all []turn
	for _, nodes := range []int{100, 300, 1000} {
		turns, err := read(kept(t, nodes, 0))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, turns...)
	}
	if len(all) != 36 {
		t.Fatalf("%d turns count, want 3 of 4 benchmarks at 3 sizes", len(all))
	}
	for i, want := range []float64{5 + 1500 + 300, 0.01 + 0.15 + 0.2 + 0.45, 200 + 750 + 0.02*165000} {
		f, err := fitTo(all, formulas[i].quantity, formulas[i].variables)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.at(assumed(15000, all)); math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s of 15,000 nodes: %g, want %g, by %v", f.quantity, got, want, f)
		}
		if len(f.fixed) != 1 || f.fixed[0] != caches {
			t.Errorf("%s: %v are the same in all turns, want caches", f.quantity, f.fixed)
		}
		for _, l := range leaveOut(all, formulas[i].quantity, formulas[i].variables) {
			if l.err != nil || l.wrong > 1e-9 {
				t.Errorf("%s: without %d nodes it is wrong by %g: %v", f.quantity, l.nodes, l.wrong, l.err)
			}
		}
	}
}

// TestLeaveOut: a cost that is not a sum of that kind is told by the size that is left out.
func TestLeaveOut(t *testing.T) {
	var all []turn
	for _, n := range []int{100, 300, 1000} {
		turns, err := read(kept(t, n, 0.02))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, turns...)
	}
	worst := func() (wrong float64) {
		for _, l := range leaveOut(all, memory, []string{nodes, pods, caches}) {
			if l.err != nil {
				t.Fatal(l.err)
			}
			wrong = max(wrong, l.wrong)
		}
		return wrong
	}
	if got := worst(); got > 0.05 {
		t.Errorf("off by 2 %%, and wrong by %g", got)
	}
	for _, turn := range all {
		turn.cost[memory] += turn.has[nodes] * turn.has[nodes] / 1000
	}
	if got := worst(); got < 0.3 {
		t.Errorf("grows by the square, and wrong by %g only", got)
	}
}

func TestPage(t *testing.T) {
	got, err := model([]string{kept(t, 100, 0), kept(t, 300, 0), kept(t, 1000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"36 turns on clusters of 100, 300 and 1000 nodes",
		"| P | 5 + 1 for each lease renewal a second + 3 for each write a second; the same number in all turns, so in the constant: cache | 0 % at 100, 0 % at 300, 0 % at 1000 | 805 | 1805 |",
		"| U1 | results of 0 sizes only | | | |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// TestNoFitWithoutASize: what one size alone tells apart has no fit without it, and one with it.
func TestNoFitWithoutASize(t *testing.T) {
	var all []turn
	for _, n := range []float64{100, 300, 1000} {
		all = append(all, turn{nodes: int(n), has: map[string]float64{nodes: n, pods: n}, cost: map[string]float64{memory: 3 * n}})
	}
	all = append(all, turn{nodes: 1000, has: map[string]float64{nodes: 1000, pods: 400}, cost: map[string]float64{memory: 2400}})
	if _, err := fitTo(all, memory, []string{nodes, pods}); err != nil {
		t.Error(err)
	}
	for _, l := range leaveOut(all, memory, []string{nodes, pods}) {
		if (l.err != nil) != (l.nodes == 1000) {
			t.Errorf("without %d nodes: %v", l.nodes, l.err)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		folders []string
		want    string
	}{
		{[]string{kept(t, 100, 0), kept(t, 100, 0), kept(t, 300, 0)}, "results of 3 sizes of cluster are needed, there are those of 2: [100 300] nodes"},
		{[]string{t.TempDir()}, "run.json: no such file"},
	} {
		if _, err := model(test.folders); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %s", test.folders, err, test.want)
		}
	}
	dir := kept(t, 100, 0)
	if err := os.WriteFile(filepath.Join(dir, "samples.jsonl"), []byte(`{"benchmark": "other"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := read(dir); err == nil || !strings.Contains(err.Error(), `the benchmark "other"`) {
		t.Errorf("read: %v", err)
	}
	same := []turn{{nodes: 1, has: map[string]float64{nodes: 1, pods: 2}}, {nodes: 2, has: map[string]float64{nodes: 2, pods: 4}}, {nodes: 3, has: map[string]float64{nodes: 3, pods: 6}}}
	if _, err := fitTo(same, memory, []string{nodes, pods}); err == nil || !strings.Contains(err.Error(), "do not tell [node pod] apart") {
		t.Errorf("fitTo: %v", err)
	}
}
