// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are what it is about.

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
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslicemirroring"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// endpointsTest is about Endpoints whose Service the cache lacks.
type endpointsTest struct {
	stock bool
	proof freshness.Proof
	// live says that the server has the Service, down that it does not answer.
	live, down bool
	// uncached Endpoints are not in the cache.
	uncached bool
	// refused deletions are answered that the Endpoints have changed, so many times.
	refused int
	// slow is how long a proof takes.
	slow time.Duration

	deleted bool
	reads   int
	tried   int // deletions; 0: not counted
}

// Stock deletes the Endpoints of a Service that its cache lacks, by name.
func TestEndpointsOfAServiceThatTheCacheLacks(t *testing.T) {
	for name, test := range map[string]endpointsTest{
		"stock, cache stale":                 {stock: true, live: true, deleted: true},
		"cache stale":                        {proof: stale, live: true, reads: 1},
		"gone, cache stale":                  {proof: stale, deleted: true, reads: 1},
		"gone":                               {proof: fresh, deleted: true},
		"gone, Endpoints are not cached":     {proof: fresh, uncached: true, deleted: true},
		"gone, Endpoints have changed":       {proof: fresh, refused: 1, deleted: true},
		"stock, all deletions are refused":   {stock: true, refused: 1000, tried: 14},
		"all are refused, and proofs slow":   {proof: fresh, slow: 3 * briefly, refused: 1000, tried: 14},
		"nothing can be proven":              {proof: down, live: true, reads: 1},
		"gone, nothing can be proven":        {proof: down, deleted: true, reads: 1},
		"nothing can be proven, and no read": {proof: down, down: true, reads: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test.run(t) })
		})
	}
}

func (c endpointsTest) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var store *Store
	consistency.SetProvider(func(controller string, caches map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		if c.stock {
			return consistency.NewNoopConsistencyStore()
		}
		require.Equal(t, "endpoint", controller)
		store = passStore(ctx, nil, caches)
		store.name, store.prover = controller, &answers{Prover: &slowProver{&verdictOfCache{proof: c.proof, store: store}, c.slow}}
		store.budget = livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst)
		return store
	})
	left := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid", ResourceVersion: "7"}}
	client := fake.NewClientset()
	reads, refused := 0, c.refused
	client.PrependReactor("get", "services", func(k8stesting.Action) (bool, runtime.Object, error) {
		reads++
		switch {
		case c.down:
			return true, nil, errors.New("the server does not answer")
		case c.live:
			return true, &corev1.Service{}, nil
		}
		return true, nil, apierrors.NewNotFound(corev1.Resource("services"), "a")
	})
	var asked []metav1.DeleteOptions
	client.PrependReactor("delete", "endpoints", func(action k8stesting.Action) (bool, runtime.Object, error) {
		asked = append(asked, action.(k8stesting.DeleteActionImpl).DeleteOptions)
		if refused--; refused >= 0 {
			return true, nil, apierrors.NewConflict(corev1.Resource("endpoints"), "a", errors.New("it has changed"))
		}
		return false, nil, nil
	})
	if c.uncached {
		client.PrependReactor("list", "endpoints", func(k8stesting.Action) (bool, runtime.Object, error) { return true, &corev1.EndpointsList{}, nil })
		require.NoError(t, client.Tracker().Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}))
	}
	require.NoError(t, client.Tracker().Add(left))
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	controller := endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), client, 0)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	runUntilCleanup(t, cancel, factory, func() { controller.Run(ctx, 1) })
	synctest.Wait()
	if c.uncached {
		require.NoError(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), "ns", "a"))
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	_, err := client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("endpoints"), "ns", "a")
	require.Equal(t, c.deleted, apierrors.IsNotFound(err), err)
	if c.reads >= 0 {
		require.Equal(t, c.reads, reads)
	} else {
		require.Positive(t, reads)
		require.Less(t, reads, 100, "no loop of reads")
	}
	if c.tried > 0 {
		require.Equal(t, c.tried, len(asked))
	}
	for _, options := range asked {
		if c.stock {
			require.Equal(t, metav1.DeleteOptions{}, options)
			continue
		}
		require.Equal(t, &metav1.Preconditions{UID: &left.UID, ResourceVersion: &left.ResourceVersion}, options.Preconditions)
	}
	if c.deleted {
		waiting := 0
		if store != nil {
			waiting = len(store.waiting)
		}
		require.Zero(t, waiting, "nothing is kept of what is gone")
	}
}

// slowProver takes so long for each proof.
type slowProver struct {
	Prover
	by time.Duration
}

func (p *slowProver) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	time.Sleep(p.by)
	return p.Prover.Prove(ctx, resource, asOf)
}

// A mirrored slice is deleted as it was read, and one that is refused is tried again.
func TestMirroredSlicesAreDeletedAsTheyWereRead(t *testing.T) {
	for _, stock := range []bool{true, false} {
		t.Run(map[bool]string{true: "stock", false: "ours"}[stock], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				provideFor(ctx, t, "endpointslicemirroring", stock)
				slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-x", UID: "uid", ResourceVersion: "7",
					Labels: map[string]string{discoveryv1.LabelServiceName: "a", discoveryv1.LabelManagedBy: "endpointslicemirroring-controller.k8s.io"}}}
				client := fake.NewClientset(slice, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}}})
				var asked []metav1.DeleteOptions
				client.PrependReactor("delete", "endpointslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
					asked = append(asked, action.(k8stesting.DeleteActionImpl).DeleteOptions)
					if len(asked) < 3 {
						return true, nil, apierrors.NewConflict(discoveryv1.Resource("endpointslices"), "a-x", errors.New("it has changed"))
					}
					return false, nil, nil
				})
				factory := informers.NewSharedInformerFactory(client, 0)
				controller := endpointslicemirroring.NewController(ctx, factory.Core().V1().Endpoints(), factory.Discovery().V1().EndpointSlices(), factory.Core().V1().Services(), 100, client, 0)
				factory.Start(ctx.Done())
				factory.WaitForCacheSync(ctx.Done())
				runUntilCleanup(t, cancel, factory, func() { controller.Run(ctx, 1) })
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Len(t, asked, 3)
				for _, options := range asked {
					if stock {
						require.Equal(t, metav1.DeleteOptions{}, options)
						continue
					}
					require.Equal(t, &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}, options.Preconditions)
				}
			})
		})
	}
}
