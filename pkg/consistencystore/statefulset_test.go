// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// noStatus takes every status.
type noStatus struct{}

func (noStatus) UpdateStatefulSetStatus(context.Context, *appsv1.StatefulSet, *appsv1.StatefulSetStatus) error {
	return nil
}

// Upstream's history makes its requests without the reconcile's context.
func TestRevisionsOfAStatefulSetAreRecorded(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "web"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name, UID: "uid"},
		Spec:       appsv1.StatefulSetSpec{Replicas: new(int32), RevisionHistoryLimit: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", UID: "revision", ResourceVersion: "7"}, Revision: 1}
	for _, provided := range []bool{true, false} {
		store := &listener{}
		if provided {
			consistency.SetProvider(func(string, map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
				return store
			})
			t.Cleanup(func() { consistency.SetProvider(nil) })
		}
		lister := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Apps().V1().ControllerRevisions().Lister()
		client := answering(t, runtime.ContentTypeJSON, http.StatusOK, revision)
		control := statefulset.NewDefaultStatefulSetControl(
			statefulset.NewStatefulPodControl(client, nil, nil, record.NewFakeRecorder(9), store), noStatus{}, history.NewHistory(client, lister, nil))
		_, err := control.UpdateStatefulSet(consistency.WithOwner(t.Context(), store, owner, "uid"), set, nil, time.Now())
		require.NoError(t, err)
		if provided {
			require.Equal(t, []call{{owner: owner, ownerUID: "uid", resource: "controllerrevisions.apps", rv: "7"},
				{resource: "controllerrevisions.apps", rv: "7", fence: true}}, store.calls)
		} else {
			require.Empty(t, store.calls, "as upstream")
		}
		consistency.SetProvider(nil)
	}
}

// unproven is a store of which nothing is proven.
type unproven struct {
	consistency.NoopConsistencyStore
	asked []schema.GroupResource
}

func (u *unproven) ProveFresh(_ context.Context, resources ...schema.GroupResource) error {
	u.asked = append(u.asked, resources...)
	return &UnprovenError{}
}

// A claim that has gone with its pod is lost, so the owner that takes it along is one of the things that need a proof; to take
// an owner off a claim saves it, and needs none.
func TestAClaimGetsNoOwnerUnproven(t *testing.T) {
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32), VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
		},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", UID: "pod"}}
	owned := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "pod"}}
	for name, tc := range map[string]struct {
		replicas int32
		owners   []metav1.OwnerReference
		refused  bool
	}{
		"scaled down":          {0, nil, true},
		"scaled up once again": {1, owned, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-web-0", OwnerReferences: tc.owners}}
			client, store := fake.NewClientset(claim), &unproven{}
			claims := informers.NewSharedInformerFactory(client, 0).Core().V1().PersistentVolumeClaims()
			require.NoError(t, claims.Informer().GetStore().Add(claim))
			set := set.DeepCopy()
			*set.Spec.Replicas = tc.replicas
			control := statefulset.NewStatefulPodControl(client, nil, claims.Lister(), record.NewFakeRecorder(9), store)
			err := control.UpdatePodClaimForRetentionPolicy(t.Context(), set, pod)
			now, getErr := client.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), claim.Name, metav1.GetOptions{})
			require.NoError(t, getErr)
			if !tc.refused {
				require.NoError(t, err)
				require.Empty(t, store.asked)
				require.Empty(t, now.OwnerReferences)
				return
			}
			require.ErrorAs(t, err, new(*UnprovenError))
			require.Equal(t, []schema.GroupResource{{Group: "apps", Resource: "statefulsets"}, {Resource: "pods"}}, store.asked)
			require.Empty(t, now.OwnerReferences, "it does not go with its pod")
		})
	}
}
