// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"
)

func resources(n int) (out []Cache) {
	for i := range n {
		out = append(out, Cache{
			Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprint("things-", i)},
			Handlers: []Handler{{Name: "job", Lag: time.Second}},
			Measured: &Measured{State: "fresh", Age: time.Duration(i) * time.Second, Every: time.Minute, Proven: time.Unix(int64(i), 0)},
		})
	}
	return out
}

// written are the values of readings, by labels.
func written(t *testing.T, readings []reading) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, r := range readings {
		var m dto.Metric
		require.NoError(t, r.Write(&m))
		out[fmt.Sprint(r.Desc(), m.GetLabel())] = m.GetGauge().GetValue()
	}
	return out
}

// Each scrape has its own values, a second one takes nothing from the first, and what is gone is kept by none.
func TestScrapesShareLabelsOnly(t *testing.T) {
	Register()
	c := &caches{}
	all := resources(2)
	first := c.readings(all)
	require.Len(t, first, 2*11)
	before := written(t, first)
	all[1].Age, all[1].State = time.Hour, "stalled"
	second := c.readings(all)
	require.Equal(t, before, written(t, first), "the first is as it was")
	changed := 0
	for name, value := range written(t, second) {
		if before[name] != value {
			changed++
		}
	}
	require.Equal(t, 3, changed, "an age and two states")
	require.Same(t, first[0].series, second[0].series)
	require.Len(t, c.readings(all[:1]), 11)
	require.Len(t, c.made, 11)
}

// What a scrape of the caches of a kube-controller-manager costs.
func BenchmarkScrape(b *testing.B) {
	Register()
	all := resources(61)
	SetCaches(func() []Cache { return all })
	b.Cleanup(func() { SetCaches(nil) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := legacyregistry.DefaultGatherer.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
