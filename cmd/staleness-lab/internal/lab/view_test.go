// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/control"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane/gates"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

func readySnapshot() Snapshot {
	return Snapshot{
		Phase: Ready, Elapsed: 75 * time.Second, ReadyAfter: 12345 * time.Millisecond,
		Components: []Component{
			{Status: controlplane.Status{Name: "etcd", State: controlplane.StateRunning, PID: 17, Version: "3.7.3"}},
			{
				Status:   controlplane.Status{Name: "kube-controller-manager", State: controlplane.StateFailed},
				Restarts: 2, Trouble: "died: signal: killed", Tail: []string{"last words"},
			},
		},
		NodesReady: 50, NodesWanted: 100,
		DaemonSet: DaemonSet{Counted: true, Desired: 100, Current: 60, Ready: 50},
		Gates:     []gates.Gate{{Name: "MonitorInformerStaleness", On: true}, {Name: "StaleControllerConsistencyJob"}},
		BinDir:    "/co/_output/bin", PageURL: "https://127.0.0.1:2/stalenessz", PageConfig: "/lab/stalenessz.curl", Node: "node-0000",
		Page: &stalenessz.Stalenessz{
			Caches: []stalenessz.StalenesszCache{
				{Resource: "nodes", State: "stalled", Reason: "Watch", AgeSeconds: new(31.2), Protected: true},
				{Resource: "pods", State: "fresh", AgeSeconds: new(float64(3)), Protected: true},
				{Group: "batch", Resource: "jobs", State: "quiet", AgeSeconds: new(float64(190)), Protected: false},
				{Resource: "services", State: "unknown", Reason: "NotProbed"},
			},
			Waits: []stalenessz.StalenesszWait{
				{Controller: "daemonset", Owner: "default/sample", Resource: "nodes", For: "a proof", WaitSeconds: 7.3},
			},
			WaitsTotal: 1,
		},
		Faults:     []*Fault{{Fault: control.Fault{Kind: control.Hold, Name: "nodes", For: time.Minute}, Begin: time.Now().Add(-time.Hour)}},
		Kubeconfig: "/lab/admin.kubeconfig", Dir: "/lab", LogsDir: "/lab/logs", Temporary: true,
	}
}

func shown(s Snapshot, columns int) string {
	var lines []string
	for _, l := range s.Lines(columns) {
		lines = append(lines, l.Text)
	}
	return strings.Join(lines, "\n")
}

func TestLines(t *testing.T) {
	require.Equal(t, `Fresh KCM lab: ready after 12.3 s, running for 1:15
COMPONENT                STATE    PID  VERSION  RESTARTS
etcd                     running  17   3.7.3    0
kube-controller-manager  failed   -             2
  died: signal: killed
  | last words

Nodes      [##########..........] 50/100 Ready
DaemonSet  [##########..........] 100 desired, 60 current, 50 ready
Caches     1 fresh, 1 quiet, 1 stalled, 1 unknown
           oldest 31 s (nodes), unprotected 190 s (jobs)
           nodes is stalled (Watch)
Waits      1 wait for a cache
           7 s: daemonset default/sample waits for nodes: a proof
Fault      hold nodes, healing

In another terminal:
  export KUBECONFIG=/lab/admin.kubeconfig
  export PATH=/co/_output/bin:$PATH
  kubectl get pods --watch
  curl -K /lab/stalenessz.curl
  staleness-lab hold nodes --for 60s
  staleness-lab kill-node node-0000 --for 90s
  staleness-lab refuse-pods --for 30s
Ctrl-C stops everything and removes /lab
Logs: /lab/logs
Gates on   MonitorInformerStaleness
Gates off  StaleControllerConsistencyJob`, shown(readySnapshot(), 80))

	kept := readySnapshot()
	kept.Temporary = false
	require.Contains(t, shown(kept, 80), "leaves /lab")

	empty := Snapshot{Phase: Starting, Waiting: "starting etcd", NodesWanted: 3}
	require.Contains(t, shown(empty, 80), "starting, 0:00, starting etcd")
	require.Contains(t, shown(empty, 80), "? desired")
	require.NotContains(t, shown(empty, 80), "Caches", "nothing is known")
}

func TestFacts(t *testing.T) {
	facts := map[string]string{}
	for _, f := range readySnapshot().Facts() {
		facts[f.Key] = f.Text
	}
	require.Equal(t, map[string]string{
		"component/etcd":                    "etcd: running, pid 17, version 3.7.3, restarts 0",
		"component/kube-controller-manager": "kube-controller-manager: failed",
		"trouble/kube-controller-manager":   "kube-controller-manager: died: signal: killed (restarts: 2)\n| last words",
		"nodes":                             "nodes: 50/100 Ready",
		"daemonset":                         "sample: 100 desired, 60 current, 50 ready",
		"gates":                             "gates on: MonitorInformerStaleness; off: StaleControllerConsistencyJob",
		"kubeconfig":                        "export KUBECONFIG=/lab/admin.kubeconfig",
		"kubectl":                           "export PATH=/co/_output/bin:$PATH",
		"page":                              "/stalenessz at https://127.0.0.1:2/stalenessz: curl -K /lab/stalenessz.curl",
		"faults":                            "faults: staleness-lab hold nodes --for 60s, kill-node node-0000 --for 90s, refuse-pods --for 30s",
		"caches":                            "caches: nodes is stalled (Watch)",
		"waits":                             "waiting for a cache: 1",
		"fault":                             "faults in force: hold nodes",
		"logs":                              "logs: /lab/logs",
		"phase":                             "ready: 100 nodes Ready and sample on every one, after 12.3 s",
	}, facts)
}

func TestAHealthyLabFitsALowWindow(t *testing.T) {
	s := readySnapshot()
	s.Components = nil
	for _, name := range []string{"etcd", "kube-apiserver-0", "kube-scheduler", "kwok", "kube-controller-manager"} {
		s.Components = append(s.Components, Component{Status: controlplane.Status{Name: name, State: controlplane.StateRunning}})
	}
	s.Faults, s.Page.Caches, s.Page.Waits, s.Page.WaitsTotal = nil, s.Page.Caches[1:3], nil, 0
	const rows = 23 // of 24, as the cursor rests on the last
	var shown []string
	for _, line := range s.Lines(80)[:rows] {
		shown = append(shown, line.Text)
	}
	require.Contains(t, shown, "Ctrl-C stops everything and removes /lab")
}

func TestManySickCachesAndWaits(t *testing.T) {
	s := readySnapshot()
	for range 5 {
		s.Page.Caches = append(s.Page.Caches, s.Page.Caches[0])
		s.Page.Waits = append(s.Page.Waits, s.Page.Waits[0])
	}
	s.Page.WaitsTotal = 2000
	require.Equal(t, 3, strings.Count(shown(s, 80), "nodes is stalled"))
	require.Contains(t, shown(s, 80), "and 3 more")
	require.Contains(t, shown(s, 80), "and 1997 more")
}

func TestBar(t *testing.T) {
	require.Equal(t, "[....................]", bar(0, 0))
	require.Equal(t, "[####################]", bar(7, 5))
}
