// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMarkReached(t *testing.T) {
	for name, tc := range map[string]struct {
		seen, rv string
		want     bool
		wantErr  string
	}{
		"nothing yet":          {rv: "1"},
		"before":               {seen: "9", rv: "10"},
		"at":                   {seen: "10", rv: "10", want: true},
		"past":                 {seen: "11", rv: "10", want: true},
		"cannot be compared":   {seen: "v-11", rv: "10", wantErr: `"v-11"`},
		"nor the one asked of": {seen: "11", rv: "v-10", wantErr: `"v-10"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Mark{ResourceVersion: tc.seen}.Reached(tc.rv)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}
