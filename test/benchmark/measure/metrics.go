// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics is one scrape.
type Metrics map[string]*dto.MetricFamily

// Parse reads the text format.
func Parse(page []byte) (Metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return families, nil
}

// Sum adds up the series of a counter or gauge.
func (m Metrics) Sum(name string) (sum float64) {
	for _, series := range m[name].GetMetric() {
		sum += value(series)
	}
	return sum
}

// Max returns the largest value of a counter's or gauge's series, and whether there is one.
func (m Metrics) Max(name string) (most float64, ok bool) {
	for _, series := range m[name].GetMetric() {
		if v := value(series); !ok || v > most {
			most, ok = v, true
		}
	}
	return most, ok
}

func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Requests returns what an apiserver was asked between two scrapes, by verb and resource as in "update
// deployments/status". Watches count when they end, as the apiserver counts them.
func Requests(before, after Metrics) map[string]int {
	sums := map[string]float64{}
	for sign, m := range map[float64]Metrics{-1: before, 1: after} {
		for _, series := range m["apiserver_request_total"].GetMetric() {
			resource := label(series, "resource")
			if resource == "" {
				continue // pages such as /metrics
			}
			if sub := label(series, "subresource"); sub != "" {
				resource += "/" + sub
			}
			sums[strings.ToLower(label(series, "verb"))+" "+resource] += sign * value(series)
		}
	}
	out := map[string]int{}
	for kind, n := range sums {
		if n > 0 {
			out[kind] = int(n)
		}
	}
	return out
}

// Quantile estimates a quantile of what a histogram's series together observed between two scrapes, as Prometheus does:
// within a bucket values are taken for evenly spread. It is 0 if nothing was observed.
func Quantile(q float64, name string, before, after Metrics) float64 {
	counts := map[float64]float64{} // cumulative, by upper bound
	for sign, m := range map[float64]Metrics{-1: before, 1: after} {
		for _, series := range m[name].GetMetric() {
			h := series.GetHistogram()
			counts[math.Inf(1)] += sign * float64(h.GetSampleCount())
			for _, b := range h.GetBucket() {
				if !math.IsInf(b.GetUpperBound(), 1) {
					counts[b.GetUpperBound()] += sign * float64(b.GetCumulativeCount())
				}
			}
		}
	}
	rank := q * counts[math.Inf(1)]
	if rank <= 0 {
		return 0
	}
	lower, below := 0.0, 0.0
	for _, upper := range slices.Sorted(maps.Keys(counts)) {
		if counts[upper] >= rank {
			if math.IsInf(upper, 1) {
				return lower
			}
			return lower + (upper-lower)*(rank-below)/(counts[upper]-below)
		}
		lower, below = upper, counts[upper]
	}
	return lower
}

// Caches counts the caches that the monitor of kube-controller-manager watches, and those whose age it does not know.
func (m Metrics) Caches() (all, unknown int) {
	for _, series := range m["informer_staleness_state"].GetMetric() {
		if label(series, "state") == "unknown" {
			all++
			unknown += int(value(series))
		}
	}
	return all, unknown
}

// Alarms counts how often the monitor has said of a cache that it is behind or that its age is unknown.
func (m Metrics) Alarms() (n float64) {
	for _, series := range m["informer_staleness_state_changes_total"].GetMetric() {
		switch label(series, "state") {
		case "lagging", "stalled", "unknown":
			n += value(series)
		}
	}
	return n
}
