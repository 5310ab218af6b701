// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// behindAll shows every cache to be stale without end.
type behindAll struct{ script }

func (*behindAll) Prove(context.Context, schema.GroupResource, time.Time) freshness.Proof {
	return stale
}

func (*behindAll) Wait(ctx context.Context, _ schema.GroupResource, _ freshness.Proof) { <-ctx.Done() }

// Pod garbage collection, by what it is given: which pods it deletes, and whether it says whose. That others have the names by
// now is no error: upstream waits after one.
func TestPodGC(t *testing.T) {
	finished := func(i int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("finished-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i))},
			Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
	}
	unscheduled := finished(9)
	unscheduled.Name, unscheduled.Spec.NodeName, unscheduled.DeletionTimestamp = "unscheduled", "", &metav1.Time{Time: time.Now()}
	unscheduled.Status.Phase = corev1.PodRunning
	for name, test := range map[string]struct {
		proven, stock bool
		want          []string
	}{
		"stock":      {stock: true, want: []string{"finished-0", "finished-1", "unscheduled"}},
		"proven":     {proven: true, want: []string{"finished-0/uid-0", "finished-1/uid-1", "unscheduled/uid-9"}},
		"not proven": {want: []string{"unscheduled/uid-9"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				prover := busyCaches{nodes: {}, pods: {}}
				consistency.SetProvider(func(controller string, _ map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
					if test.stock {
						return consistency.NewNoopConsistencyStore()
					}
					require.Equal(t, "podgc", controller)
					if test.proven {
						return passStore(ctx, prover, map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: prover[nodes], pods: prover[pods]})
					}
					behind := version("4")
					return passStore(ctx, &behindAll{}, map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &behind, pods: &behind})
				})
				t.Cleanup(func() { consistency.SetProvider(nil) })
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
				client := fake.NewClientset(node, finished(0), finished(1), finished(2), unscheduled)
				var mu sync.Mutex
				var deleted []string
				client.PrependReactor("delete", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
					d := action.(k8stesting.DeleteActionImpl)
					what := d.Name
					if p := d.DeleteOptions.Preconditions; p != nil {
						what += "/" + string(*p.UID)
					}
					mu.Lock()
					defer mu.Unlock()
					deleted = append(deleted, what)
					if test.stock {
						return true, nil, nil
					}
					return true, nil, apierrors.NewConflict(corev1.Resource("pods"), d.Name, fmt.Errorf("another UID"))
				})
				factory := informers.NewSharedInformerFactory(client, 0)
				gc := podgc.NewPodGCInternal(ctx, client, factory.Core().V1().Pods(), factory.Core().V1().Nodes(), 1, 20*time.Second, 40*time.Second)
				factory.Start(ctx.Done())
				factory.WaitForCacheSync(ctx.Done())
				go gc.Run(ctx)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				cancel()
				factory.Shutdown()
				require.ElementsMatch(t, test.want, deleted)
			})
		})
	}
}
