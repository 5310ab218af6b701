// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDelivery(t *testing.T) {
	d := NewDelivery("taints")
	require.Equal(t, "taints", d.Name())
	for _, step := range []struct {
		tell func(string)
		rv   string
		want uint64
		why  string
	}{
		{d.Event, "", 0, "nothing"},
		{d.Bookmark, "10", 10, "the end of the first list"},
		{d.Event, "12", 12, "an event"},
		{d.Event, "7", 12, "a resync"},
		{d.Event, "x", 12, "no number"},
		{d.Bookmark, "0", 12, "no version"},
		{d.Event, "99999999999999999999", 12, "more digits than etcd writes"},
		{d.Bookmark, "20", 20, "a bookmark"},
		{d.Event, "5", 20, "an object of a list after a restore"},
		{d.Bookmark, "6", 6, "and its end"},
	} {
		step.tell(step.rv)
		require.Equal(t, step.want, d.Position(), step.why)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { d.Event("1234567890"); d.Bookmark("1234567891") }))
}
