// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
)

var pods = schema.GroupResource{Resource: "pods"}

func TestTracker(t *testing.T) {
	Register()
	legacyregistry.Reset()
	m := Tracker{}
	m.Init("test", Values{Parked: []string{"own_writes", "relist"}, Proofs: []string{"Proven"}}, pods)
	m.WaitStarted("test", pods)
	m.WaitEnded("test", 20*time.Millisecond, "Seen")
	m.Parked("test", "own_writes", 3)
	m.WriteToCache("test", pods, time.Millisecond)
	m.Stale("test", pods)
	m.Dropped("test", pods, "Rewound")
	m.Untracked("test", pods)
	m.Incomparable(pods, "Write")
	m.Regression(pods)
	m.Rewind(pods)
	m.Fence(pods, nil)
	m.Fence(pods, errors.New("no server"))
	m.Proof(pods, "Proven")
	m.Proof(pods, "Unknown")
	m.Proof(pods, "Stale")
	m.Proof(pods, "Stale")
	InitStartProofs(pods, "Proven", "Unknown")
	StartProof(pods, "Proven")

	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP stale_controller_parked_owners [ALPHA] Number of objects that wait to be reconciled now, by reason.
# TYPE stale_controller_parked_owners gauge
stale_controller_parked_owners{controller="test",reason="own_writes"} 3
stale_controller_parked_owners{controller="test",reason="relist"} 0
# HELP stale_controller_rewinds_total [ALPHA] Number of times a consistent read proved that the server's resource versions went backward, as after a restore of etcd.
# TYPE stale_controller_rewinds_total counter
stale_controller_rewinds_total{group="",resource="pods"} 1
# HELP stale_controller_fences_total [ALPHA] Number of consistent reads of a collection's resource version made for waiting objects, by outcome.
# TYPE stale_controller_fences_total counter
stale_controller_fences_total{group="",outcome="Error",resource="pods"} 1
stale_controller_fences_total{group="",outcome="OK",resource="pods"} 1
# HELP stale_controller_relist_proofs_total [ALPHA] Number of proofs of a cache asked for because another cache of the same controller was relisted, by outcome of the proof.
# TYPE stale_controller_relist_proofs_total counter
stale_controller_relist_proofs_total{group="",outcome="Proven",resource="pods"} 1
stale_controller_relist_proofs_total{group="",outcome="Stale",resource="pods"} 2
stale_controller_relist_proofs_total{group="",outcome="Unknown",resource="pods"} 1
# HELP stale_controller_start_proofs_total [ALPHA] Number of caches that controllers waited for before they started, by outcome of the proof that they are as new as the start of leadership.
# TYPE stale_controller_start_proofs_total counter
stale_controller_start_proofs_total{group="",outcome="Proven",resource="pods"} 1
stale_controller_start_proofs_total{group="",outcome="Unknown",resource="pods"} 0
`), "stale_controller_start_proofs_total", "stale_controller_relist_proofs_total", "stale_controller_parked_owners", "stale_controller_rewinds_total", "stale_controller_fences_total"))
}
