// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A handler is told of a list's resource version once it has been told of all its objects. A bookmark of a watch is none.
func TestListsAreToldOnce(t *testing.T) {
	done := 0
	l := &lists{do: func() { done++ }}
	l.bookmark("5")
	l.bookmark("")
	require.Zero(t, done)
	l.replaced("7")
	l.bookmark("6") // of the watch before
	require.Zero(t, done)
	l.bookmark("7")
	l.bookmark("7") // the server's, of a quiet resource
	require.Equal(t, 1, done)
	l.replaced("8")
	l.replaced("9")
	l.bookmark("8")
	require.Equal(t, 1, done)
	l.bookmark("9")
	require.Equal(t, 2, done)
}
