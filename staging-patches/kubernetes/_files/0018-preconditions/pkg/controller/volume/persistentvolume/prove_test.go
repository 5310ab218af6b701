// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/pkg/volume"
)

// knowingStore can tell what is fresh.
type knowingStore struct {
	consistencyutil.ConsistencyStore
}

func (knowingStore) Proves() bool { return true }

// The volume was released by the claim with the UID old, and the server has it bound to another claim, or has that claim, which the cache lacks.
func TestVolumesBoundAgainAreNotReclaimed(t *testing.T) {
	released := newVolume("v", "1Gi", "old", "claim", v1.VolumeReleased, v1.PersistentVolumeReclaimDelete, "")
	boundAgain := newVolume("v", "1Gi", "new", "other", v1.VolumeBound, v1.PersistentVolumeReclaimDelete, "")
	claim := func(uid, volume string) *v1.PersistentVolumeClaim {
		return newClaim("claim", uid, "1Gi", volume, v1.ClaimBound, nil)
	}
	for name, test := range map[string]struct {
		live  *v1.PersistentVolume
		claim *v1.PersistentVolumeClaim // that the server has
		down  bool                      // the server answers no reads of claims
		store consistencyutil.ConsistencyStore
		want  bool // that it is reclaimed
		uid   bool
	}{
		"stock, bound again": {live: boundAgain, store: consistencyutil.NewNoopConsistencyStore(), want: true},
		"bound again":        {live: boundAgain, store: knowingStore{}},
		"released":           {live: released, store: knowingStore{}, want: true, uid: true},

		"stock, its claim is there":         {live: released, claim: claim("old", "v"), store: consistencyutil.NewNoopConsistencyStore(), want: true},
		"its claim is there":                {live: released, claim: claim("old", "v"), store: knowingStore{}},
		"its claim is there, not bound yet": {live: released, claim: claim("old", ""), store: knowingStore{}},
		"its claim is bound elsewhere":      {live: released, claim: claim("old", "w"), store: knowingStore{}, want: true, uid: true},
		"another claim has the name":        {live: released, claim: claim("new", "v"), store: knowingStore{}, want: true, uid: true},
		"it cannot be told":                 {live: released, down: true, store: knowingStore{}},
		"stock, claims are not read for it": {live: released, down: true, store: consistencyutil.NewNoopConsistencyStore(), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			live := test.live.DeepCopy()
			live.UID = "volume"
			live.Annotations = map[string]string{}
			decided := released.DeepCopy()
			decided.UID = "volume"
			client := fake.NewClientset(live)
			if test.claim != nil {
				require.NoError(t, client.Tracker().Add(test.claim))
			}
			client.PrependReactor("get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
				return test.down, nil, errors.New("the server does not answer")
			})
			var deletions []clienttesting.DeleteActionImpl
			client.PrependReactor("delete", "persistentvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				deletions = append(deletions, action.(clienttesting.DeleteActionImpl))
				return true, nil, nil
			})
			ctrl, err := newTestController(ctx, client, nil, true)
			require.NoError(t, err)
			ctrl.consistencyStore = test.store
			plugin := &mockVolumePlugin{deleteCalls: []error{nil}}
			require.NoError(t, ctrl.volumePluginMgr.InitPlugins([]volume.VolumePlugin{plugin}, nil, ctrl))
			_, err = ctrl.deleteVolumeOperation(ctx, decided)
			require.NoError(t, err)
			if !test.want {
				require.Empty(t, deletions)
				require.Zero(t, plugin.deleteCallCounter)
				return
			}
			require.Equal(t, 1, plugin.deleteCallCounter)
			require.Len(t, deletions, 1)
			require.Equal(t, test.uid, deletions[0].DeleteOptions.Preconditions != nil)
		})
	}
}
