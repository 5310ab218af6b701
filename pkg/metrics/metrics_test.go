// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

var pods = schema.GroupResource{Resource: "pods"}

func TestSeriesExistAtZero(t *testing.T) {
	Register()
	Register() // more than once is allowed
	legacyregistry.Reset()
	Tracker{}.Init("zero", pods)
	InitLiveReads("zero", pods)
	InitEvictions("zero")
	InitBreaker("zero")
	InitVerifications("zero", pods)
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	series := map[string]int{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), subsystem+"_") {
			continue
		}
		require.True(t, strings.HasPrefix(family.GetHelp(), "[ALPHA]"), family.GetName())
		for _, m := range family.GetMetric() {
			series[family.GetName()]++
			require.Zero(t, m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount()), "%s %s", family.GetName(), m)
		}
	}
	require.Len(t, series, 27, "every metric has a series before anything happens: %v", series)
}

func TestTracker(t *testing.T) {
	Register()
	legacyregistry.Reset()
	m := Tracker{}
	m.Init("test", pods)
	m.WaitStarted("test", pods)
	m.WaitEnded("test", pods, 20*time.Millisecond, rvtracker.OutcomeSeen)
	m.Parked("test", 3)
	m.WriteToCache("test", pods, time.Millisecond)
	m.Stale("test", pods)
	m.Dropped("test", pods, rvtracker.OutcomeRewound)
	m.Untracked("test", pods)
	m.Incomparable(pods, rvtracker.OriginWrite)
	m.Regression(pods)
	m.Rewind(pods)
	m.Fence(pods, nil)
	m.Fence(pods, errors.New("no server"))
	m.Proof(pods, nil)
	m.Proof(pods, errors.New("no server"))
	m.Proof(pods, fmt.Errorf("pods: %w", rvtracker.ErrStale))
	m.Proof(pods, fmt.Errorf("pods: %w", rvtracker.ErrStale))

	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP stale_controller_parked_owners [ALPHA] Number of objects held back from being reconciled now, by what they wait for.
# TYPE stale_controller_parked_owners gauge
stale_controller_parked_owners{controller="test",reason="own_writes"} 3
stale_controller_parked_owners{controller="test",reason="start"} 0
stale_controller_parked_owners{controller="test",reason="unsettled_write"} 0
# HELP stale_controller_rewinds_total [ALPHA] Number of times a consistent read proved that the server's resource versions went backward, as after a restore of etcd.
# TYPE stale_controller_rewinds_total counter
stale_controller_rewinds_total{group="",resource="pods"} 1
# HELP stale_controller_fences_total [ALPHA] Number of consistent reads of a collection's resource version made for waiting objects, by result.
# TYPE stale_controller_fences_total counter
stale_controller_fences_total{group="",resource="pods",result="error"} 1
stale_controller_fences_total{group="",resource="pods",result="ok"} 1
# HELP stale_controller_relist_proofs_total [ALPHA] Number of times a cache was asked about because another one that a controller reads was listed anew, by whether it was proven as new as that.
# TYPE stale_controller_relist_proofs_total counter
stale_controller_relist_proofs_total{group="",resource="pods",result="Proven"} 1
stale_controller_relist_proofs_total{group="",resource="pods",result="Stale"} 2
stale_controller_relist_proofs_total{group="",resource="pods",result="Unknown"} 1
`), "stale_controller_relist_proofs_total", "stale_controller_parked_owners", "stale_controller_rewinds_total", "stale_controller_fences_total"))
}
