// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/controller/scheduling/podgroupprotection"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/pkg/controller/volume/vacprotection"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// protectedKind is a kind whose objects keep a finalizer while something uses them.
type protectedKind struct {
	controller string
	object     runtime.Object
	kind       schema.GroupVersionKind
	finalizer  string
	resources  []schema.GroupResource // of what may use it
	grace      time.Duration          // that upstream waits after the deletion
	run        func(ctx context.Context, client *fake.Clientset, factory informers.SharedInformerFactory) (start func(), err error)
}

func protectedKinds() map[string]protectedKind {
	return map[string]protectedKind{
		"ServiceCIDR": {
			controller: "service-cidr", finalizer: servicecidrs.ServiceCIDRProtectionFinalizer, grace: 10 * time.Second,
			kind:      networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
			object:    &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.200.0.0/24"}}},
			resources: []schema.GroupResource{networkingv1.Resource("ipaddresses"), networkingv1.Resource("servicecidrs")},
			run: func(ctx context.Context, client *fake.Clientset, factory informers.SharedInformerFactory) (func(), error) {
				c := servicecidrs.NewController(ctx, factory.Networking().V1().ServiceCIDRs(), factory.Networking().V1().IPAddresses(), client)
				return func() { c.Run(ctx, 1) }, nil
			},
		},
		"VolumeAttributesClass": {
			controller: "volumeattributesclass-protection", finalizer: volumeutil.VACProtectionFinalizer,
			kind:      storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"),
			object:    &storagev1.VolumeAttributesClass{DriverName: "example.com"},
			resources: []schema.GroupResource{{Resource: "persistentvolumeclaims"}, {Resource: "persistentvolumes"}},
			run: func(ctx context.Context, client *fake.Clientset, factory informers.SharedInformerFactory) (func(), error) {
				core := factory.Core().V1()
				c, err := vacprotection.NewVACProtectionController(klog.FromContext(ctx), client, core.PersistentVolumeClaims(), core.PersistentVolumes(),
					factory.Storage().V1().VolumeAttributesClasses())
				return func() { c.Run(ctx, 1) }, err
			},
		},
		"PodGroup": {
			controller: "podgroup-protection", finalizer: scheduling.PodGroupProtectionFinalizer,
			kind:      schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup"),
			object:    &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}},
			resources: []schema.GroupResource{pods},
			run: func(ctx context.Context, client *fake.Clientset, factory informers.SharedInformerFactory) (func(), error) {
				c, err := podgroupprotection.NewPodGroupProtectionController(klog.FromContext(ctx), factory.Scheduling().V1beta1().PodGroups(), factory.Core().V1().Pods(), client)
				return func() { c.Run(ctx, 1) }, err
			},
		},
	}
}

// A finalizer is taken off once the caches of what may use the object are proven as of its deletion, each of them, or after a while.
func TestFinalizersWaitForProofsOfWhatMayUseTheObject(t *testing.T) {
	for kind, k := range protectedKinds() {
		all := map[schema.GroupResource]freshness.Proof{}
		for _, resource := range k.resources {
			all[resource] = fresh
		}
		t.Run(kind+", stock", func(t *testing.T) { k.test(t, nil, 0) })
		t.Run(kind+", fresh", func(t *testing.T) { k.test(t, all, 0) })
		for _, resource := range k.resources {
			for name, one := range map[string]struct {
				proof freshness.Proof
				held  time.Duration
			}{"stale": {stale, rvtracker.OwnerLimits.Stale}, "cannot be proven": {down, rvtracker.OwnerLimits.Unknown}} {
				proofs := map[schema.GroupResource]freshness.Proof{resource: one.proof}
				for _, other := range k.resources {
					if other != resource {
						proofs[other] = fresh
					}
				}
				t.Run(kind+", "+resource.Resource+" "+name, func(t *testing.T) { k.test(t, proofs, one.held) })
			}
		}
	}
}

// Of two ServiceCIDRs with one range that are deleted at the same time each counts as having the addresses of the other, though nothing is stale: both
// are gone then, and their addresses belong to none. One alone stays.
func TestServiceCIDRsOfOneRangeThatAreDeletedTogether(t *testing.T) {
	k := protectedKinds()["ServiceCIDR"]
	for _, proofs := range []map[schema.GroupResource]freshness.Proof{nil, {k.resources[0]: fresh, k.resources[1]: fresh}} {
		for cidrs, gone := range map[int]int{1: 0, 2: 2} {
			t.Run(fmt.Sprintf("%d, stock %t", cidrs, proofs == nil), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					var prover func(*Store) Prover
					if proofs != nil {
						prover = func(store *Store) Prover { return &proofTimes{proofs: proofs, store: store} }
					}
					provideStores(ctx, t, prover)
					client := fake.NewClientset(&networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.200.0.7", Labels: map[string]string{
						networkingv1.LabelIPAddressFamily: "IPv4", networkingv1.LabelManagedBy: ipallocator.ControllerName,
					}}})
					for i := range cidrs {
						cidr := k.object.DeepCopyObject().(*networkingv1.ServiceCIDR)
						cidr.Name, cidr.UID, cidr.Finalizers = fmt.Sprint("cidr-", i), types.UID(fmt.Sprint("uid-", i)), []string{k.finalizer}
						cidr.DeletionTimestamp = &metav1.Time{Time: time.Now()}
						require.NoError(t, client.Tracker().Add(cidr))
					}
					factory := k.start(ctx, t, client)
					time.Sleep(5 * time.Minute)
					taken := 0
					for _, action := range client.Actions() {
						if p, ok := action.(k8stesting.PatchAction); ok && strings.Contains(string(p.GetPatch()), "$deleteFromPrimitiveList/finalizers") {
							taken++
						}
					}
					require.Equal(t, gone, taken)
					cancel()
					factory.Shutdown()
					time.Sleep(10 * time.Minute)
				})
			})
		}
	}
}

// While the server refuses to take a finalizer off, and proofs are slow, it is tried as often as upstream tries it.
func TestFinalizersThatAreRefusedKeepTheirBackoff(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil // One of them waits since the last error of the process, by a clock that is not the bubble's.
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	for kind, k := range protectedKinds() {
		t.Run(kind, func(t *testing.T) {
			slow := func(store *Store) Prover {
				return &slowProver{&verdictOfCache{proof: fresh, store: store}, 3 * briefly}
			}
			down := apierrors.NewInternalError(errors.New("a webhook is down"))
			stock, ours := k.tries(t, nil, down), k.tries(t, slow, down)
			require.Greater(t, stock, 10)
			require.InDelta(t, stock, ours, 2)
		})
	}
}

// A finalizer that was taken off without a proof, as none was to be had, is not taken off again, though the cache does not see that it is off.
func TestFinalizersAreTakenOffOnce(t *testing.T) {
	for kind, k := range protectedKinds() {
		t.Run(kind, func(t *testing.T) {
			require.Equal(t, 1, k.tries(t, nil, nil))
			require.Equal(t, 1, k.tries(t, unanswered, nil))
		})
	}
}

// The wait of an object does not shorten that of another one of its name.
func TestFinalizerOfAnotherObjectOfTheNameWaits(t *testing.T) {
	k := protectedKinds()["PodGroup"]
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		provideStores(ctx, t, unanswered)
		client := fake.NewClientset()
		gvr, _ := meta.UnsafeGuessKindToResource(k.kind)
		factory := k.start(ctx, t, client)
		for i := range 2 {
			group := k.object.DeepCopyObject().(*schedulingv1beta1.PodGroup)
			group.Name, group.UID, group.Finalizers, group.DeletionTimestamp = "a", types.UID(fmt.Sprint("uid-", i)), []string{k.finalizer}, &metav1.Time{Time: time.Now()}
			began := time.Now()
			client.ClearActions()
			require.NoError(t, client.Tracker().Add(group))
			taken := func() bool {
				synctest.Wait()
				return slices.ContainsFunc(client.Actions(), func(a k8stesting.Action) bool { return a.Matches("update", gvr.Resource) })
			}
			for !taken() && time.Since(began) < 5*time.Minute {
				time.Sleep(100 * time.Millisecond)
			}
			require.GreaterOrEqual(t, time.Since(began), rvtracker.OwnerLimits.Unknown)
			require.Less(t, time.Since(began), rvtracker.OwnerLimits.Unknown+10*time.Second)
			require.NoError(t, client.Tracker().Delete(gvr, "ns", "a"))
		}
		cancel()
		factory.Shutdown()
		time.Sleep(10 * time.Minute)
	})
}

// unanswered is a prover whom no server answers.
func unanswered(store *Store) Prover { return &verdictOfCache{proof: down, store: store} }

// provideStores has controllers be given stores with the prover for as long as the test lasts; stock's, if there is none.
func provideStores(ctx context.Context, t *testing.T, prover func(*Store) Prover) {
	t.Helper()
	consistency.SetProvider(func(controller string, caches map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		if prover == nil {
			return consistency.NewNoopConsistencyStore()
		}
		store := passStore(ctx, nil, caches)
		store.name = controller
		store.prover = &answers{Prover: prover(store)}
		return store
	})
	t.Cleanup(func() { consistency.SetProvider(nil) })
}

// start starts the controller, once its caches have what the client has.
func (k protectedKind) start(ctx context.Context, t *testing.T, client *fake.Clientset) informers.SharedInformerFactory {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	start, err := k.run(ctx, client, factory)
	require.NoError(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go start()
	return factory
}

// tries is how often the finalizer is tried to take off in 5 min, if nothing that the cache sees comes of it, and each try is answered with answer; on stock, if there is
// no prover.
func (k protectedKind) tries(t *testing.T, prover func(*Store) Prover, answer error) (tried int) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		provideStores(ctx, t, prover)
		client, object := fake.NewClientset(), k.object.DeepCopyObject()
		gvr, _ := meta.UnsafeGuessKindToResource(k.kind)
		for _, verb := range []string{"update", "patch"} {
			client.PrependReactor(verb, gvr.Resource, func(k8stesting.Action) (bool, runtime.Object, error) {
				tried++
				return true, object, answer
			})
		}
		m, err := meta.Accessor(object)
		require.NoError(t, err)
		m.SetName("a")
		m.SetUID("uid")
		m.SetFinalizers([]string{k.finalizer})
		m.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		require.NoError(t, client.Tracker().Add(object))
		factory := k.start(ctx, t, client)
		time.Sleep(5 * time.Minute)
		cancel()
		factory.Shutdown()
		time.Sleep(10 * time.Minute)
	})
	return tried
}

func (k protectedKind) test(t *testing.T, proofs map[schema.GroupResource]freshness.Proof, held time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var store *Store
		asked := &proofTimes{}
		var prover func(*Store) Prover
		if proofs != nil {
			prover = func(s *Store) Prover {
				require.Equal(t, k.controller, s.name)
				store, asked.proofs, asked.store = s, proofs, s
				return asked
			}
		}
		provideStores(ctx, t, prover)
		client := fake.NewClientset()
		factory := k.start(ctx, t, client)
		defer func() {
			cancel()
			factory.Shutdown()
			time.Sleep(10 * time.Minute)
		}()
		time.Sleep(time.Minute)

		object := k.object.DeepCopyObject()
		m, err := meta.Accessor(object)
		require.NoError(t, err)
		deleted := time.Now()
		m.SetName("a")
		m.SetUID("uid")
		m.SetFinalizers([]string{k.finalizer})
		m.SetDeletionTimestamp(&metav1.Time{Time: deleted})
		taken := func() time.Duration {
			synctest.Wait()
			for _, action := range client.Actions() {
				if u, ok := action.(k8stesting.UpdateAction); ok && action.GetSubresource() == "" {
					if m, err := meta.Accessor(u.GetObject()); err == nil && len(m.GetFinalizers()) == 0 {
						return time.Since(deleted)
					}
				}
				if p, ok := action.(k8stesting.PatchAction); ok && strings.Contains(string(p.GetPatch()), "$deleteFromPrimitiveList/finalizers") {
					require.Equal(t, proofs != nil, strings.Contains(string(p.GetPatch()), `"uid":"uid"`))
					return time.Since(deleted)
				}
			}
			return 0
		}
		require.NoError(t, client.Tracker().Add(object))
		var when time.Duration
		for when == 0 && time.Since(deleted) < 10*time.Minute {
			time.Sleep(time.Second)
			when = taken()
		}
		require.NotZero(t, when, "it waits without end")
		require.GreaterOrEqual(t, when, k.grace+held)
		require.LessOrEqual(t, when, k.grace+held+10*time.Second)
		if proofs != nil {
			require.NotEmpty(t, asked.times)
			for _, asOf := range asked.times {
				require.False(t, asOf.Before(deleted.Add(k.grace)), "a proof from before the deletion, by %s", deleted.Sub(asOf))
			}
			gvr, _ := meta.UnsafeGuessKindToResource(k.kind)
			require.NoError(t, client.Tracker().Delete(gvr, m.GetNamespace(), "a"))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, store.waiting)
		}
	})
}

// proofTimes notes as of when proofs are asked for, and says that they are of what the cache has.
type proofTimes struct {
	verdicts
	proofs map[schema.GroupResource]freshness.Proof
	store  *Store

	mu    sync.Mutex
	times []time.Time
}

func (p *proofTimes) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	p.mu.Lock()
	p.times = append(p.times, asOf)
	p.mu.Unlock()
	return (&verdictOfCache{proof: p.proofs[resource], store: p.store}).Prove(ctx, resource, asOf)
}
