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

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics/metricstest"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func TestNoSeriesOfWhatIsGone(t *testing.T) {
	Register()
	s := &Staleness{}
	s.Watched(widgets)
	require.Equal(t, map[string]int{
		informers + "_state_changes_total": 5, informers + "_probes_total": 5, informers + "_probe_requests_total": 3,
		informers + "_probe_response_bytes_total": 1, informers + "_rewinds_total": 1,
		informers + "_ended_watches_total": 1,
	}, metricstest.SeriesOf(t, "widgets"), "they exist from the start")
	s.Probed(widgets, "Throttled")
	require.Equal(t, 6, metricstest.SeriesOf(t, "widgets")[informers+"_probes_total"])

	count := func() {
		s.Probed(widgets, "fresh")
		s.Entered(widgets, "stalled")
		s.Fence(widgets, time.Second)
		s.List(widgets, time.Second)
		s.Watch(widgets, time.Second)
		s.Bytes(widgets, 100)
		s.Rewind(widgets)
		s.WatchesEnded(widgets, 1)
	}
	count()
	s.Unwatched(widgets)
	count()
	require.Empty(t, metricstest.SeriesOf(t, "widgets"), "and no more once the resource is gone")
	s.Watched(widgets)
	require.Len(t, metricstest.SeriesOf(t, "widgets"), 6)
	s.Unwatched(widgets)
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
		thing := func(i int) schema.GroupVersionResource {
			return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprintf("things%d", i)}
		}
		seen := func(r schema.GroupVersionResource) {
			s.Watched(r)
			s.Rewind(r)
			Tracker{}.Regression(r.GroupResource())
			Tracker{}.Rewind(r.GroupResource())
			Tracker{}.Fence(r.GroupResource(), nil)
			Tracker{}.Proof(r.GroupResource(), "Proven")
			Tracker{}.Incomparable(r.GroupResource(), "Store")
			Unproven("garbagecollector", r.GroupResource(), "Stale")
		}
		gone := func(r schema.GroupVersionResource) {
			s.Unwatched(r)
			Tracker{}.Forgotten(r.GroupResource())
			s.Probed(r, "fresh")
		}
		seen(thing(0)) // Some series are of all definitions together.
		gone(thing(0))
		before := series()
		for range 3 {
			for i := range 300 {
				seen(thing(i))
			}
			require.Greater(t, series(), before+300*20)
			for i := range 300 {
				gone(thing(i))
			}
			require.Equal(t, before, series())
		}
		time.Sleep(11 * time.Minute)
		s.Probed(thing(0), "fresh")
		require.Empty(t, s.gone)
		s.Unwatched(thing(0))
	})
}
