// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricstest looks at the process's metrics for tests.
package metricstest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
)

// SeriesOf counts the series of a resource, by metric. It requires that each is ALPHA.
func SeriesOf(t *testing.T, resource string) map[string]int {
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
