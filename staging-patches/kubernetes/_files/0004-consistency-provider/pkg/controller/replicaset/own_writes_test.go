// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/controller"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// seenStore says what was seen, and notes which resources are written.
type seenStore struct {
	consistencyutil.ConsistencyStore
	seen  bool
	wrote []schema.GroupResource
}

func (s *seenStore) SeenOwnWrites(types.NamespacedName) bool { return s.seen }

func (s *seenStore) WroteAt(_ types.NamespacedName, _ types.UID, resource schema.GroupResource, _ string) {
	s.wrote = append(s.wrote, resource)
}

// A pod that was created and deleted while the watch was cut off is never seen.
func TestExpectationsEndWhenOwnWritesAreSeen(t *testing.T) {
	for _, kind := range []string{"ReplicaSet", "ReplicationController"} {
		for _, seen := range []bool{true, false} {
			_, ctx := ktesting.NewTestContext(t)
			rs := newReplicaSet(1, map[string]string{"foo": "bar"})
			client := fake.NewClientset(rs)
			rsc, informers := testNewReplicaSetControllerFromClient(t, client, make(chan struct{}), 10)
			pods := &controller.FakePodControl{}
			store := &seenStore{ConsistencyStore: consistencyutil.NewNoopConsistencyStore(), seen: seen}
			rsc.Kind, rsc.podControl, rsc.consistencyStore = kind, pods, store
			require.NoError(t, informers.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(rs))
			key, err := controller.KeyFunc(rs)
			require.NoError(t, err)
			logger, _ := ktesting.NewTestContext(t)
			require.NoError(t, rsc.expectations.ExpectCreations(logger, key, 1))

			require.NoError(t, rsc.syncReplicaSet(ctx, key))
			require.Len(t, pods.Templates, map[bool]int{true: 1}[seen], "a pod in place of the one that was never seen")
			require.Len(t, store.wrote, 1)
			if kind == "ReplicaSet" {
				require.Equal(t, replicaSetGroupResource, store.wrote[0])
			} else {
				require.Equal(t, v1.Resource("replicationcontrollers"), store.wrote[0])
			}
		}
	}
}
