// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessz

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics/metricstest"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func TestCaches(t *testing.T) {
	metrics.Register()
	gone := schema.GroupVersionResource{Resource: "gone"}
	p := &Page{Monitoring: true}
	p.Add(&term{caches: []stalenessmonitor.Cache{
		{
			Resource: widgets, State: stalenessmonitor.Stalled, Every: 13 * time.Second, Proven: time.UnixMilli(1_000_500), Age: 12500 * time.Millisecond,
			Lag:      stalenessmonitor.Lag{Watch: 7, Queue: 2},
			Handlers: []stalenessmonitor.Handler{{Name: "garbagecollector", Lag: 90 * time.Second}, {Name: "resourcequota"}},
		},
		{Resource: schema.GroupVersionResource{Resource: "unproven"}, State: stalenessmonitor.Unknown, Reason: stalenessmonitor.ReasonNotSynced},
		{Resource: schema.GroupVersionResource{Resource: "unasked"}, State: stalenessmonitor.Unknown, Reason: stalenessmonitor.ReasonNotProbed},
		{Resource: gone, State: stalenessmonitor.Unknown, Reason: string(freshness.ReasonNotFound)},
	}})
	p.Publish()
	t.Cleanup(func() { metrics.SetCaches(nil); metrics.SetWaits(nil) })
	require.Empty(t, metricstest.SeriesOf(t, "gone"))
	require.Empty(t, metricstest.SeriesOf(t, "unasked"), "its turn has not come: nothing is amiss")
	require.Equal(t, map[string]int{"informer_staleness_state": 5, "informer_staleness_lag_resource_versions": 2, "informer_staleness_probe_interval_seconds": 1}, metricstest.SeriesOf(t, "unproven"), "it has no age")
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP informer_staleness_seconds [ALPHA] Upper bound on the age of an informer's cache: time since the newest moment as of which it is proven complete. Absent while nothing is proven.
# TYPE informer_staleness_seconds gauge
informer_staleness_seconds{group="example.com",resource="widgets",version="v1"} 12.5
# HELP informer_staleness_last_proof_timestamp_seconds [ALPHA] Unix time as of which an informer's cache was last proven complete. Absent while nothing is proven.
# TYPE informer_staleness_last_proof_timestamp_seconds gauge
informer_staleness_last_proof_timestamp_seconds{group="example.com",resource="widgets",version="v1"} 1000.5
# HELP informer_staleness_lag_resource_versions [ALPHA] Lag of an informer's cache behind the server, in changes to any resource: not yet received by the watch, and waiting in the informer's queue. 0 for a cache without lag.
# TYPE informer_staleness_lag_resource_versions gauge
informer_staleness_lag_resource_versions{group="example.com",resource="widgets",version="v1",where="queue"} 2
informer_staleness_lag_resource_versions{group="example.com",resource="widgets",version="v1",where="watch"} 7
informer_staleness_lag_resource_versions{group="",resource="unproven",version="",where="queue"} 0
informer_staleness_lag_resource_versions{group="",resource="unproven",version="",where="watch"} 0
# HELP informer_staleness_probe_interval_seconds [ALPHA] Time after a proof at which the monitor probes an informer's cache again. It probes caches that protected controllers read so often that their ages stay within 15 s; the others share the rest of 2 requests a second.
# TYPE informer_staleness_probe_interval_seconds gauge
informer_staleness_probe_interval_seconds{group="example.com",resource="widgets",version="v1"} 13
informer_staleness_probe_interval_seconds{group="",resource="unproven",version=""} 0
# HELP informer_staleness_handler_lag_seconds [ALPHA] How long an event handler lags behind its informer's cache, by the package that added the handler. 0 without lag.
# TYPE informer_staleness_handler_lag_seconds gauge
informer_staleness_handler_lag_seconds{group="example.com",handler="garbagecollector",resource="widgets",version="v1"} 90
informer_staleness_handler_lag_seconds{group="example.com",handler="resourcequota",resource="widgets",version="v1"} 0
`), "informer_staleness_handler_lag_seconds", "informer_staleness_probe_interval_seconds", "informer_staleness_seconds", "informer_staleness_last_proof_timestamp_seconds", "informer_staleness_lag_resource_versions"))
}
