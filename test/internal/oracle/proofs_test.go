// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

func TestProofs(t *testing.T) {
	require.Zero(t, Proofs(nil).PerSecond())
	agent := "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/0000000/shared-informers"
	var events []controlplane.AuditEvent
	ask := func(at time.Duration) {
		events = append(events, request(at, "list", "pods", "", controllerAgent+" freshness"))
	}
	start := func(at time.Duration) {
		for range startLists {
			list := request(at, "watch", "pods", "", agent)
			list.RequestURI, list.Stage = "/api/v1/pods?sendInitialEvents=true&watch=true", "ResponseStarted"
			events = append(events, list)
			ask(at + time.Second)
		}
	}
	start(0)
	for i := range 10 {
		ask(40*time.Second + time.Duration(i)*time.Second)
	}
	events = append(events, request(45*time.Second, "list", "pods", "", agent)) // one relist is no start
	start(60 * time.Second)
	ask(92 * time.Second)
	events = append(events, request(95*time.Second, "update", "pods", "", controllerAgent))
	got := Proofs(events)
	require.Equal(t, ProofLoad{All: 2*startLists + 11, Settled: 11, Over: 35 * time.Second}, got)
	require.InDelta(t, 0.314, got.PerSecond(), 0.001)
}
