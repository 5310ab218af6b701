// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

func metadataScheme(t *testing.T) *runtime.Scheme {
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	return scheme
}

// A large cache that stands still takes long to prove. A deletion that depends on one object and its pods does not
// wait for that, but for a server that has them otherwise it does.
func TestADeletionDoesNotWaitForTheProofOfALargeQuietCache(t *testing.T) {
	const slow = promptly - time.Millisecond
	labels := map[string]string{"app": "set"}
	labelled := func(pod *v1.Pod) *v1.Pod {
		pod.UID, pod.Labels = types.UID(pod.Name), labels
		return pod
	}
	for name, tc := range map[string]struct {
		objects int
		served  []runtime.Object
		budget  int
		takes   time.Duration
	}{
		"as read":              {objects: 200, budget: 2, takes: sharedFirst},
		"small":                {objects: 50, budget: 2, takes: slow},
		"the spec has changed": {objects: 200, budget: 2, served: []runtime.Object{aSet("a", 4)}, takes: slow},
		"a pod has changed":    {objects: 200, budget: 2, served: []runtime.Object{labelled(aPod("1", "40", "a"))}, takes: slow},
		"a pod has come":       {objects: 200, budget: 2, served: []runtime.Object{labelled(aPod("4", "40", "a"))}, takes: slow},
		"others' pods":         {objects: 200, budget: 2, served: []runtime.Object{labelled(aPod("4", "40", "b"))}, takes: sharedFirst},
		"no budget":            {objects: 200, budget: 1, takes: slow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store, _ := newCaches(t)
				read := aSet("a", 3)
				read.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
				has := map[string]runtime.Object{}
				for _, o := range append([]runtime.Object{read, labelled(aPod("1", "11", "a")), labelled(aPod("2", "20", "a"))}, tc.served...) {
					served := serve(t, o)
					has[served.Kind+served.Name] = served
				}
				var objects []runtime.Object
				for _, o := range has {
					objects = append(objects, o)
				}
				for _, pod := range []*v1.Pod{aPod("1", "11", "a"), aPod("2", "20", "a")} {
					require.NoError(t, c.pods.Update(labelled(pod)))
				}
				store.live = &Live{client: metadatafake.NewSimpleMetadataClient(metadataScheme(t), objects...), budget: livereads.NewBudget(0.01, tc.budget),
					version: func(r schema.GroupResource) (schema.GroupVersionResource, bool) { return r.WithVersion("v1"), true },
					few:     func(schema.GroupResource) bool { return tc.objects <= 100 }}
				c.takes = slow
				for _, resource := range []schema.GroupResource{daemons, pods} {
					// Proven later, of a quiet cache.
					c.proof[resource] = freshness.Proof{Outcome: freshness.Proven, Exact: true, ResourceVersion: "20"}
				}
				began := time.Now()
				require.NoError(t, consistency.ProveFresh(consistency.WithOwnerRead(t.Context(), store, read, setKind), store, daemons, pods))
				require.Equal(t, tc.takes, time.Since(began))
				time.Sleep(slow)
			})
		})
	}
}

// serve is an object as the server shows its metadata.
func serve(t *testing.T, o runtime.Object) *metav1.PartialObjectMetadata {
	t.Helper()
	switch o := o.(type) {
	case *apps.DaemonSet:
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: o.ObjectMeta}
	case *v1.Pod:
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: o.ObjectMeta}
	}
	t.Fatalf("%T", o)
	return nil
}
