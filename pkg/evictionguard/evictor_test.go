// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	k8stesting "k8s.io/client-go/testing"
)

// A guarded eviction marks the pod before it deletes it, in upstream's words; only the deletion has a precondition.
func TestAGuardedEvictionPatchesAsUpstream(t *testing.T) {
	patches := map[bool][]string{}
	for _, guarded := range []bool{false, true} {
		runEvictions(t, guarded, func(e *evictions) {
			e.pod("pod", "uid", 0)
			e.taint(noExec("a"))
			require.Zero(t, e.after(time.Second))
			for _, action := range e.client.Actions() {
				switch a := action.(type) {
				case k8stesting.PatchAction:
					patches[guarded] = append(patches[guarded], a.GetSubresource()+" "+a.GetName()+" "+string(a.GetPatchType())+" "+string(a.GetPatch()))
				case k8stesting.DeleteActionImpl:
					preconditions := a.DeleteOptions.Preconditions
					require.Equal(t, guarded, preconditions != nil)
					if guarded {
						require.EqualValues(t, "uid", *preconditions.UID)
					}
				}
			}
		})
	}
	require.Len(t, patches[false], 1)
	require.Contains(t, patches[false][0], "DeletionByTaintManager")
	require.Equal(t, patches[false], patches[true])
}
