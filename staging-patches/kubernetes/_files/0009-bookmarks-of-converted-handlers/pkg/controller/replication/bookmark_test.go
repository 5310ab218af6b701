// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"testing"

	"github.com/stretchr/testify/require"

	"k8s.io/client-go/tools/cache"
)

func TestConversionPassesBookmarksOn(t *testing.T) {
	var got string
	handler := conversionEventHandler{cache.ResourceEventHandlerFuncs{BookmarkFunc: func(rv string) { got = rv }}}
	handler.GetBookmarkFunc()("7")
	require.Equal(t, "7", got)
	require.Nil(t, conversionEventHandler{cache.ResourceEventHandlerFuncs{}}.GetBookmarkFunc())
}
