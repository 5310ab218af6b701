// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/stretchr/testify/require"
)

func TestLongest(t *testing.T) {
	page := `other_bucket{le="9"} 1
passes_bucket{le="0.01"} 3
passes_bucket{le="0.04"} 5
passes_bucket{le="0.16"} 5
passes_bucket{le="+Inf"} 5
passes_sum 0.1
passes_count 5
`
	gomega.RegisterTestingT(t)
	require.Equal(t, 40*time.Millisecond, longest(page, "passes"))
	require.Zero(t, longest(page, "none"))
}
