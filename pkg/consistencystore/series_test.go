// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/fresh-kcm/fresh-kcm/pkg/evictionguard"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/nodebreaker"
)

func TestSeriesExistAtZero(t *testing.T) {
	metrics.Register()
	metrics.Register() // more than once is allowed
	legacyregistry.Reset()
	metrics.Tracker{}.Init("zero", seriesValues, pods)
	nodebreaker.NewNodes(nodebreaker.NodesOptions{Controller: "zero"})
	evictionguard.NewTaintGuard(t.Context(), evictionguard.Options{Controller: "zero"}, struct{ evictionguard.Evictor }{})
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	series := map[string]int{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "stale_controller_") {
			continue
		}
		require.True(t, strings.HasPrefix(family.GetHelp(), "[ALPHA]"), family.GetName())
		for _, m := range family.GetMetric() {
			series[family.GetName()]++
			require.Zero(t, m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount()), "%s %s", family.GetName(), m)
		}
	}
	require.Len(t, series, 25, "every metric but those of how long objects wait, and writes take to reach a cache, has a series before anything happens: %v", series)
}
