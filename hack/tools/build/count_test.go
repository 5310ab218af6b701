// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestCount(t *testing.T) {
	counts := newCounter()
	for _, test := range []struct {
		dir  string
		want count
	}{
		{"one", count{packages: 4, compiled: 4}},
		{"two", count{packages: 4, compiled: 3, again: 2}}, // b is another one, so c is too
		{"two", count{packages: 4}},
	} {
		if got := counts.add(inventoryOf(t, test.dir)); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.dir, got, test.want)
		}
	}
}
