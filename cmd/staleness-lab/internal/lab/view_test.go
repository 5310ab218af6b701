// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
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
		DaemonSet:  DaemonSet{Counted: true, Desired: 100, Current: 60, Ready: 50},
		Gates:      []gates.Gate{{Name: "MonitorInformerStaleness", On: true}, {Name: "StaleControllerConsistencyJob"}},
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
Gates on   MonitorInformerStaleness
Gates off  StaleControllerConsistencyJob

export KUBECONFIG=/lab/admin.kubeconfig
Logs: /lab/logs
Ctrl-C stops everything and removes /lab`, shown(readySnapshot(), 80))

	kept := readySnapshot()
	kept.Temporary = false
	require.Contains(t, shown(kept, 80), "leaves /lab")

	empty := Snapshot{Phase: Starting, Waiting: "starting etcd", NodesWanted: 3}
	require.Contains(t, shown(empty, 80), "starting, 0:00, starting etcd")
	require.Contains(t, shown(empty, 80), "? desired")
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
		"logs":                              "logs: /lab/logs",
		"phase":                             "ready: 100 nodes Ready and sample on every one, after 12.3 s",
	}, facts)
}

func TestBar(t *testing.T) {
	require.Equal(t, "[....................]", bar(0, 0))
	require.Equal(t, "[####################]", bar(7, 5))
}
