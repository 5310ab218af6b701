// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// A pod is ready on a node that the cache lacks for 20 s. By stock it becomes an endpoint when its Service is tried again after that,
// which takes longer each time.
func TestPodsOnNodesThatTheCacheLacks(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	for name, test := range map[string]struct {
		stock  bool
		live   error // of reads of the node
		went   bool  // the cache has seen the node go before
		served time.Duration
	}{
		"stock":     {stock: true, served: 25 * time.Second},
		"there":     {served: 0},
		"not there": {live: apierrors.NewNotFound(nodeResource, "node"), served: 20 * time.Second},
		"went":      {went: true, served: 20 * time.Second},
		"refused":   {live: errors.New("refused"), served: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				consistency.SetProvider(func(controller string, caches map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
					if test.stock {
						return consistency.NewNoopConsistencyStore()
					}
					require.Equal(t, "endpointslice", controller)
					s := passStore(ctx, nil, caches)
					s.name, s.budget = controller, livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst)
					return s
				})
				t.Cleanup(func() { consistency.SetProvider(nil) })
				client := fake.NewClientset(
					&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "service", UID: "service"}, Spec: corev1.ServiceSpec{
						Selector: map[string]string{"app": "a"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: 80}}}},
				)
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod", Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{NodeName: "node"},
					Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
						Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
				reads := 0
				client.PrependReactor("get", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
					reads++
					return true, node, test.live
				})
				factory := informers.NewSharedInformerFactory(client, 0)
				core := factory.Core().V1()
				c := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), factory.Discovery().V1().EndpointSlices(), 100, client, 0)
				defer func() {
					cancel()
					factory.Shutdown()
					time.Sleep(time.Hour)
				}()
				factory.Start(ctx.Done())
				factory.WaitForCacheSync(ctx.Done())
				go c.Run(ctx, 1)
				if test.went {
					require.NoError(t, client.Tracker().Add(node))
					synctest.Wait()
					require.NoError(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node"))
				}
				synctest.Wait()
				require.NoError(t, client.Tracker().Add(pod))
				began := time.Now()
				for served := false; !served; {
					require.Less(t, time.Since(began), time.Minute, "no endpoint")
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					for _, action := range client.Actions() {
						if write, ok := action.(k8stesting.CreateAction); ok {
							slice, ok := write.GetObject().(*discoveryv1.EndpointSlice)
							served = served || ok && len(slice.Endpoints) > 0
						}
					}
					if time.Since(began) == 20*time.Second {
						require.NoError(t, client.Tracker().Add(node))
					}
				}
				require.Equal(t, test.stock || test.went, reads == 0)
				if test.stock {
					require.Greater(t, time.Since(began), test.served)
				} else {
					require.InDelta(t, test.served.Seconds(), time.Since(began).Seconds(), 1.5)
				}
			})
		})
	}
}
