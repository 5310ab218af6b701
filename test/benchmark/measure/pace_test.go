// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	pace, err := Pace()
	require.NoError(t, err)
	require.Positive(t, pace)
	t.Logf("%.1f ms", pace*1e3)
}
