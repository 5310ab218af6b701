// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalledwatch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKinds(t *testing.T) {
	kinds, err := Kinds()
	require.NoError(t, err)
	require.Len(t, kinds, 30)
	busy := 0
	for _, k := range kinds {
		if k.Busy {
			busy++
		}
		require.Equal(t, objectName, k.object.GetName(), k.Resource)
	}
	require.Equal(t, 10, busy)
	require.Empty(t, kinds[7].object.GetNamespace(), kinds[7].Resource)
	require.Equal(t, "default", kinds[0].object.GetNamespace())
	for _, line := range []string{"a/b/c things Thing {}", "v1 things Thing {"} {
		_, err := parse(line)
		require.Error(t, err, line)
	}
}
