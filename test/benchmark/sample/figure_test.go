// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormat(t *testing.T) {
	for _, test := range []struct {
		figure string
		value  float64
		want   string
	}{
		{End, 0, "0 s"}, {End, 0.0000123, "12.3 µs"}, {End, 0.0456, "45.6 ms"}, {End, 1.2345, "1.23 s"}, {End, 1234.5, "1234 s"},
		{KCMRSS, 187 << 20, "187 MiB"}, {KCMRSS, 1 << 19, "0.5 MiB"},
		{KCMWrites, 0, "0"}, {KCMWrites, 1203, "1203"}, {KCMWrites, 12.5, "12.5"}, {KCMAllocs, 2767441, "2.77 M"},
	} {
		f, ok := Find(test.figure)
		require.True(t, ok)
		require.Equal(t, test.want, f.Format(test.value))
	}
	_, ok := Find("end")
	require.False(t, ok)
}
