// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzModel lets the fuzzer choose what happens to the tracker, and compares it with the model.
func FuzzModel(f *testing.F) {
	for _, m := range mutants {
		f.Add([]byte(m.seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			t.Skip("longer than it takes")
		}
		newModel(faults{}).runBytes(t, data)
	})
}

// TestFuzzModelCatchesMutants shows that the fuzz target can fail, with its seeds alone.
func TestFuzzModelCatchesMutants(t *testing.T) {
	for _, tc := range mutants {
		t.Run(tc.name, func(t *testing.T) {
			tb := &deafTB{}
			done := make(chan struct{})
			go func() {
				defer close(done)
				newModel(tc.f).runBytes(tb, []byte(tc.seed))
			}()
			<-done
			require.True(t, tb.failed, "the mutant was not caught")
			t.Log(tb.msg)
		})
	}
}
