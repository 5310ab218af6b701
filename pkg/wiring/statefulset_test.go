// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
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
			require.Equal(t, []call{{owner: owner, ownerUID: "uid", resource: "controllerrevisions.apps", rv: "7"}}, store.calls)
		} else {
			require.Empty(t, store.calls, "as upstream")
		}
		consistency.SetProvider(nil)
	}
}
