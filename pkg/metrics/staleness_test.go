// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// seriesOf counts the series of a resource, by metric.
func seriesOf(t *testing.T, resource string) map[string]int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	out := map[string]int{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "resource" && label.GetValue() == resource {
					require.True(t, strings.HasPrefix(family.GetHelp(), "[ALPHA]"), family.GetName())
					out[family.GetName()]++
				}
			}
		}
	}
	return out
}

func TestNoSeriesOfWhatIsGone(t *testing.T) {
	Register()
	s := &Staleness{}
	s.Watched(widgets)
	require.Equal(t, map[string]int{
		informers + "_state_changes_total": 5, informers + "_probes_total": 5, informers + "_probe_duration_seconds": 3,
		informers + "_probe_response_bytes_total": 1, informers + "_rewinds_total": 1,
		informers + "_ended_watches_total": 1,
	}, seriesOf(t, "widgets"), "they exist from the start")
	s.Probed(widgets, "Throttled", time.Second)
	require.Equal(t, 6, seriesOf(t, "widgets")[informers+"_probes_total"])

	count := func() {
		s.Probed(widgets, "fresh", time.Second)
		s.Entered(widgets, stalenessmonitor.Stalled)
		s.Fence(widgets, freshness.ReasonNotFound, time.Second)
		s.List(widgets, "", time.Second)
		s.Watch(widgets, "", time.Second)
		s.Bytes(widgets, 100)
		s.Rewind(widgets)
		s.WatchesEnded(widgets, 1)
	}
	count()
	s.Unwatched(widgets)
	count()
	require.Empty(t, seriesOf(t, "widgets"), "and no more once the resource is gone")
	s.Watched(widgets)
	require.Len(t, seriesOf(t, "widgets"), 6)
	s.Unwatched(widgets)
}

func TestCaches(t *testing.T) {
	Register()
	gone := schema.GroupVersionResource{Resource: "gone"}
	SetCaches(func() []stalenessmonitor.Cache {
		return []stalenessmonitor.Cache{
			{
				Resource: widgets, State: stalenessmonitor.Stalled, Every: 13 * time.Second, Proven: time.UnixMilli(1_000_500), Age: 12500 * time.Millisecond,
				Lag:      stalenessmonitor.Lag{Watch: 7, Queue: 2},
				Handlers: []stalenessmonitor.Handler{{Name: "garbagecollector", Lag: 90 * time.Second}, {Name: "resourcequota"}},
			},
			{Resource: schema.GroupVersionResource{Resource: "unproven"}, State: stalenessmonitor.Unknown, Reason: stalenessmonitor.ReasonNotSynced},
			{Resource: schema.GroupVersionResource{Resource: "unasked"}, State: stalenessmonitor.Unknown, Reason: stalenessmonitor.ReasonNotProbed},
			{Resource: gone, State: stalenessmonitor.Unknown, Reason: string(freshness.ReasonNotFound)},
		}
	})
	t.Cleanup(func() { SetCaches(nil) })
	require.Empty(t, seriesOf(t, "gone"))
	require.Empty(t, seriesOf(t, "unasked"), "its turn has not come: nothing is amiss")
	require.Equal(t, map[string]int{informers + "_state": 5, informers + "_lag_resource_versions": 2, informers + "_probe_interval_seconds": 1}, seriesOf(t, "unproven"), "it has no age")
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP informer_staleness_seconds [ALPHA] Upper bound on the age of an informer's cache: time since the newest moment of which it is proven to have everything. Absent while nothing is proven.
# TYPE informer_staleness_seconds gauge
informer_staleness_seconds{group="example.com",resource="widgets",version="v1"} 12.5
# HELP informer_staleness_last_proof_timestamp_seconds [ALPHA] Unix time as of which an informer's cache was last proven to have everything. Absent while nothing is proven.
# TYPE informer_staleness_last_proof_timestamp_seconds gauge
informer_staleness_last_proof_timestamp_seconds{group="example.com",resource="widgets",version="v1"} 1000.5
# HELP informer_staleness_lag_resource_versions [ALPHA] How far an informer's cache is behind the server, in changes to any resource: what the watch has yet to bring, and what waits in the informer's queue. 0 for a cache that is not behind.
# TYPE informer_staleness_lag_resource_versions gauge
informer_staleness_lag_resource_versions{group="example.com",resource="widgets",version="v1",where="queue"} 2
informer_staleness_lag_resource_versions{group="example.com",resource="widgets",version="v1",where="watch"} 7
informer_staleness_lag_resource_versions{group="",resource="unproven",version="",where="queue"} 0
informer_staleness_lag_resource_versions{group="",resource="unproven",version="",where="watch"} 0
# HELP informer_staleness_probe_interval_seconds [ALPHA] How long after a proof the monitor asks about an informer's cache again, if nothing is amiss. Caches that protected controllers read are asked about so often that they stay within 15 s; the others share what is left of 2 requests a second.
# TYPE informer_staleness_probe_interval_seconds gauge
informer_staleness_probe_interval_seconds{group="example.com",resource="widgets",version="v1"} 13
informer_staleness_probe_interval_seconds{group="",resource="unproven",version=""} 0
# HELP informer_staleness_handler_lag_seconds [ALPHA] For how long an informer's cache has had something that an event handler was not handed yet, by the package that added the handler. 0 for one that is not behind.
# TYPE informer_staleness_handler_lag_seconds gauge
informer_staleness_handler_lag_seconds{group="example.com",handler="garbagecollector",resource="widgets",version="v1"} 90
informer_staleness_handler_lag_seconds{group="example.com",handler="resourcequota",resource="widgets",version="v1"} 0
`), informers+"_handler_lag_seconds", informers+"_probe_interval_seconds", informers+"_seconds", informers+"_last_proof_timestamp_seconds", informers+"_lag_resource_versions"))
}

// Definitions that come and go leave nothing behind, neither series nor what keeps them from coming back.
func TestNothingIsKeptOfDefinitionsThatAreGone(t *testing.T) {
	Register()
	synctest.Test(t, func(t *testing.T) {
		s := &Staleness{}
		series := func() int {
			families, err := legacyregistry.DefaultGatherer.Gather()
			require.NoError(t, err)
			n := 0
			for _, family := range families {
				if strings.HasPrefix(family.GetName(), informers) || strings.HasPrefix(family.GetName(), "stale_controller") {
					n += len(family.GetMetric())
				}
			}
			return n
		}
		before := series()
		thing := func(i int) schema.GroupVersionResource {
			return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprintf("things%d", i)}
		}
		for range 3 {
			for i := range 300 {
				r := thing(i)
				s.Watched(r)
				s.Rewind(r)
				Tracker{}.Regression(r.GroupResource())
				Tracker{}.Rewind(r.GroupResource())
				Tracker{}.Fence(r.GroupResource(), nil)
				Tracker{}.Proof(r.GroupResource(), nil)
				Tracker{}.Incomparable(r.GroupResource(), rvtracker.OriginStore)
			}
			require.Greater(t, series(), before+300*20)
			for i := range 300 {
				s.Unwatched(thing(i))
				Tracker{}.Forgotten(thing(i).GroupResource())
				s.Probed(thing(i), "fresh", time.Second)
			}
			require.Equal(t, before, series())
		}
		time.Sleep(11 * time.Minute)
		s.Probed(thing(0), "fresh", time.Second)
		require.Empty(t, s.gone)
		s.Unwatched(thing(0))
	})
}
