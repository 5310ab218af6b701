// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/devicetainteviction"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

var (
	sliceGVR = resourceapi.SchemeGroupVersion.WithResource("resourceslices")
	ruleGVR  = resourceapi.SchemeGroupVersion.WithResource("devicetaintrules")
	claimGVR = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
)

// deviceEvictions is upstream's device taint eviction controller with a guard, on a fake server whose
// watches the test holds back. The guard gets the truth about the caches.
type deviceEvictions struct {
	t       *testing.T
	client  *fake.Clientset
	watches map[string]*heldWatch
	rv      int

	mu      sync.Mutex // guards what follows
	down    bool
	proof   time.Duration // that a proof takes
	reads   map[string]int
	reports []string
}

// runDeviceEvictions runs f in a bubble with a controller that has run for a while.
func runDeviceEvictions(t *testing.T, guarded bool, f func(d *deviceEvictions)) {
	metrics.Register()
	synctest.Test(t, func(t *testing.T) {
		d := &deviceEvictions{t: t, client: fake.NewClientset(), watches: map[string]*heldWatch{}, reads: map[string]int{}}
		for _, resource := range []string{"pods", sliceGVR.Resource, ruleGVR.Resource, claimGVR.Resource} {
			held := &heldWatch{watch: watch.NewRaceFreeFake()}
			d.watches[resource] = held
			d.client.PrependWatchReactor(resource, func(k8stesting.Action) (bool, watch.Interface, error) { return true, held.watch, nil })
		}
		for resource, verb := range map[string]string{sliceGVR.Resource: "list", ruleGVR.Resource: "get", claimGVR.Resource: "get"} {
			d.client.PrependReactor(verb, resource, func(k8stesting.Action) (bool, runtime.Object, error) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.reads[resource]++
				return d.down, nil, errors.New("no server")
			})
		}
		if guarded {
			consistency.SetProvider(func(string, map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
				return deviceGuardStore{consistency.NewNoopConsistencyStore(), d}
			})
			defer consistency.SetProvider(nil)
		}
		factory := informers.NewSharedInformerFactory(d.client, 0)
		resources := factory.Resource().V1()
		controller := devicetainteviction.New(d.client, factory.Core().V1().Pods(), resources.ResourceClaims(), resources.ResourceSlices(),
			resources.DeviceTaintRules(), resources.DeviceClasses(), "devicetainteviction")
		ctx, cancel := context.WithCancel(t.Context())
		factory.Start(ctx.Done())
		done := make(chan error, 1)
		go func() { done <- controller.Run(ctx, 8) }()
		time.Sleep(time.Second)
		synctest.Wait()
		clear(d.reads) // the informers'
		d.publish(1)
		d.claim("uid")
		d.put(podGVR, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"}, Spec: corev1.PodSpec{NodeName: "node",
			ResourceClaims: []corev1.PodResourceClaim{{Name: "claim", ResourceClaimName: new("claim")}}}})
		f(d)
		cancel()
		require.NoError(t, <-done)
		factory.Shutdown()
		for _, action := range d.client.Actions() {
			if deletion, ok := action.(k8stesting.DeleteActionImpl); ok {
				require.NotNil(t, deletion.DeleteOptions.Preconditions, "deleted by UID")
				require.NotNil(t, deletion.DeleteOptions.Preconditions.UID)
			}
		}
	})
}

type deviceGuardStore struct {
	consistency.ConsistencyStore
	d *deviceEvictions
}

func (s deviceGuardStore) GuardDeviceEvictions(ctx context.Context, evictor consistency.DeviceEvictor) consistency.DeviceEvictionGuard {
	return NewDeviceTaintGuard(ctx, Options{Controller: "devicetainteviction", Prove: s.d.prove, Budget: livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst),
		Report: func(_ types.NamespacedName, uid types.UID, message string) {
			s.d.mu.Lock()
			defer s.d.mu.Unlock()
			s.d.reports = append(s.d.reports, string(uid)+": "+message)
		}}, evictor)
}

func (d *deviceEvictions) prove(_ context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	d.mu.Lock()
	down, proof := d.down, d.proof
	d.mu.Unlock()
	time.Sleep(max(proof, 5*time.Millisecond))
	switch behind := d.watches[resource.Resource].behind(); {
	case down:
		return freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonNoServer, Err: errors.New("no server")}
	case behind > 0:
		return freshness.Proof{Outcome: freshness.Stale, Events: behind}
	}
	return freshness.Proof{Outcome: freshness.Proven, At: asOf}
}

// put creates or updates an object, on the server and in its watch.
func (d *deviceEvictions) put(gvr schema.GroupVersionResource, obj runtime.Object) {
	m, err := meta.Accessor(obj)
	require.NoError(d.t, err)
	d.rv++
	m.SetResourceVersion(strconv.Itoa(d.rv))
	event := watch.Modified
	if _, err := d.client.Tracker().Get(gvr, m.GetNamespace(), m.GetName()); err != nil {
		event = watch.Added
		require.NoError(d.t, d.client.Tracker().Create(gvr, obj, m.GetNamespace()))
	} else {
		require.NoError(d.t, d.client.Tracker().Update(gvr, obj, m.GetNamespace()))
	}
	d.watches[gvr.Resource].send(event, obj)
	synctest.Wait()
}

// publish puts the pool's generation on the server, with a device that has the taints.
func (d *deviceEvictions) publish(generation int64, taints ...resourceapi.DeviceTaint) {
	d.put(sliceGVR, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slice-", generation)}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "driver", Pool: resourceapi.ResourcePool{Name: "pool", Generation: generation, ResourceSliceCount: 1},
		Devices: []resourceapi.Device{{Name: "device", Taints: taints}}}})
}

// rule taints the device by a rule, or not.
func (d *deviceEvictions) rule(effect resourceapi.DeviceTaintEffect) {
	taint := deviceTaint()
	taint.Effect = effect
	d.put(ruleGVR, &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule", UID: "rule-uid"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: new("driver")}, Taint: taint}})
}

// claim gives the device to the pod with the UID, which tolerates taints for 10 s.
func (d *deviceEvictions) claim(uid types.UID) {
	d.put(claimGVR, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "claim-uid"}, Status: resourceapi.ResourceClaimStatus{
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod", UID: uid}},
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "r", Driver: "driver", Pool: "pool", Device: "device", Tolerations: []resourceapi.DeviceToleration{{
				Operator: resourceapi.DeviceTolerationOpExists, Effect: resourceapi.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(10))}}}}}}}})
}

func deviceTaint() resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: "a", Effect: resourceapi.DeviceTaintEffectNoExecute, TimeAdded: &metav1.Time{Time: time.Now()}}
}

// after lets time pass and says whether the pod is there still.
func (d *deviceEvictions) after(limit time.Duration) bool {
	time.Sleep(limit)
	synctest.Wait()
	_, err := d.client.Tracker().Get(podGVR, "ns", "pod")
	return err == nil
}

// TestDeviceTaintGoneUnseen: what the eviction stems from is gone, and the watch does not tell.
func TestDeviceTaintGoneUnseen(t *testing.T) {
	type do func(d *deviceEvictions)
	taintSlice, untaintSlice := do(func(d *deviceEvictions) { d.publish(1, deviceTaint()) }), do(func(d *deviceEvictions) { d.publish(1) })
	for name, tc := range map[string]struct {
		watch       string
		taint, gone do
	}{
		"taint of the slice":     {sliceGVR.Resource, taintSlice, untaintSlice},
		"pool of a newer driver": {sliceGVR.Resource, taintSlice, func(d *deviceEvictions) { d.publish(2) }},
		"slice": {sliceGVR.Resource, taintSlice, func(d *deviceEvictions) {
			obj, err := d.client.Tracker().Get(sliceGVR, "", "slice-1")
			require.NoError(d.t, err)
			require.NoError(d.t, d.client.Tracker().Delete(sliceGVR, "", "slice-1"))
			d.watches[sliceGVR.Resource].send(watch.Deleted, obj)
		}},
		"rule's effect": {ruleGVR.Resource, func(d *deviceEvictions) { d.rule(resourceapi.DeviceTaintEffectNoExecute) },
			func(d *deviceEvictions) { d.rule(resourceapi.DeviceTaintEffectNone) }},
		"claim": {claimGVR.Resource, taintSlice, func(d *deviceEvictions) { d.claim("other") }},
	} {
		for guarded, stays := range map[bool]bool{false: false, true: true} {
			t.Run(fmt.Sprintf("%s,guarded=%t", name, guarded), func(t *testing.T) {
				runDeviceEvictions(t, guarded, func(d *deviceEvictions) {
					tc.taint(d)
					d.watches[tc.watch].hold()
					tc.gone(d)
					require.True(t, d.after(9*time.Second))
					require.Equal(t, stays, d.after(10*time.Second))
					if !guarded {
						return
					}
					require.Equal(t, map[string]int{tc.watch: 1}, d.reads)
					d.watches[tc.watch].release()
					require.True(t, d.after(time.Minute))
					d.publish(3, deviceTaint())
					d.claim("uid")
					require.True(t, d.after(10*time.Second-moment))
					require.False(t, d.after(2*moment), "evictions go on as before")
					require.Equal(t, map[string]int{tc.watch: 1}, d.reads, "a proven cache needs no live read")
				})
			})
		}
	}
}

func TestDeviceEvictionWaitsUntilSomethingIsKnown(t *testing.T) {
	runDeviceEvictions(t, true, func(d *deviceEvictions) {
		d.publish(1, deviceTaint())
		d.mu.Lock()
		d.down = true
		d.mu.Unlock()
		require.True(t, d.after(time.Hour))
		require.Len(t, d.reports, 1)
		require.Contains(t, d.reports[0], "uid: Eviction for a device taint has been due for 1m")
		require.LessOrEqual(t, d.reads[sliceGVR.Resource], 130)
		d.mu.Lock()
		d.down = false
		d.mu.Unlock()
		require.False(t, d.after(maxEvictionDelay))
	})
}

// TestWaitingDeviceEvictionIsCalledOff by the controller, when it gets the event.
func TestWaitingDeviceEvictionIsCalledOff(t *testing.T) {
	waiting := func() float64 { return waitingOf(t, "devicetainteviction") }
	runDeviceEvictions(t, true, func(d *deviceEvictions) {
		d.publish(1, deviceTaint())
		d.mu.Lock()
		d.down = true
		d.mu.Unlock()
		require.True(t, d.after(time.Minute))
		require.Equal(t, 1., waiting())
		d.publish(1)
		require.True(t, d.after(maxEvictionDelay))
		require.Zero(t, waiting())
	})
}

// TestCancelledDeviceEvictionIsLookedAtAgain: the taint came back as it was, and a relist shows no difference.
func TestCancelledDeviceEvictionIsLookedAtAgain(t *testing.T) {
	runDeviceEvictions(t, true, func(d *deviceEvictions) {
		taint, slices := deviceTaint(), d.watches[sliceGVR.Resource]
		d.publish(1, taint)
		slices.hold()
		d.publish(1)
		require.True(t, d.after(20*time.Second))
		d.publish(1, taint)
		slices.skip()
		require.True(t, d.after(time.Minute))
		slices.release()
		require.False(t, d.after(maxEvictionDelay+moment))
	})
}

// TestDeviceTaintedWhileCacheIsBehind: live reads that confirm the taint let the eviction go on.
func TestDeviceTaintedWhileCacheIsBehind(t *testing.T) {
	runDeviceEvictions(t, true, func(d *deviceEvictions) {
		taint := deviceTaint()
		d.publish(1, taint)
		for _, held := range d.watches {
			held.hold()
		}
		d.publish(2, taint)
		d.claim("uid")
		require.True(t, d.after(10*time.Second-moment))
		require.False(t, d.after(2*moment))
		require.Equal(t, map[string]int{sliceGVR.Resource: 1, claimGVR.Resource: 1}, d.reads)
	})
}

// TestDeviceTaintReplacedWhileJudged: the rule that an eviction stems from goes, and another comes, while
// proofs are under way. Upstream evicts by the one or the other; an eviction must not be lost in between.
func TestDeviceTaintReplacedWhileJudged(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprintf("guarded=%t", guarded), func(t *testing.T) {
			runDeviceEvictions(t, guarded, func(d *deviceEvictions) {
				d.rule(resourceapi.DeviceTaintEffectNoExecute)
				require.True(t, d.after(9*time.Second))
				d.mu.Lock()
				d.proof = 5 * time.Second
				d.mu.Unlock()
				require.Equal(t, guarded, d.after(3*time.Second), "stock evicts by the first rule")
				if !guarded {
					return
				}
				first, err := d.client.Tracker().Get(ruleGVR, "", "rule")
				require.NoError(t, err)
				require.NoError(t, d.client.Tracker().Delete(ruleGVR, "", "rule"))
				d.watches[ruleGVR.Resource].send(watch.Deleted, first)
				second := first.DeepCopyObject().(*resourceapi.DeviceTaintRule)
				second.Name, second.UID = "second", "second-uid"
				d.put(ruleGVR, second)
				require.False(t, d.after(20*time.Second), "the second rule's eviction is judged, too")
			})
		})
	}
}
