// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	metricstest "k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

const evictionController = "tainteviction"

// evictions is upstream's taint eviction controller with a guard, on a fake server whose watches of pods
// and nodes the test holds back. The guard gets the truth about the caches.
type evictions struct {
	t       *testing.T
	ctx     context.Context
	client  *fake.Clientset
	pods    *heldWatch
	nodes   *heldWatch
	rv      int
	reports []string
	// down makes every read of a node fail, and nothing be proven.
	down bool
	// refuse makes every write of a pod fail.
	refuse atomic.Bool
	reads  int
	guard  *TaintGuard
	proof  time.Duration // that a proof takes
	mu     sync.Mutex    // guards reports, down and reads
}

// heldWatch is a watch whose events are delivered when the test says so.
type heldWatch struct {
	watch *watch.RaceFreeFakeWatcher

	mu      sync.Mutex
	held    bool
	pending []watch.Event
	begun   int // times
}

func (h *heldWatch) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = true
}

func (h *heldWatch) send(event watch.EventType, obj runtime.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = append(h.pending, watch.Event{Type: event, Object: obj.DeepCopyObject()})
	if !h.held {
		h.flush()
	}
}

// skip drops the first event that is held.
func (h *heldWatch) skip() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = h.pending[1:]
}

func (h *heldWatch) behind() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.pending)
}

func (h *heldWatch) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = false
	h.flush()
}

func (h *heldWatch) flush() {
	for _, e := range h.pending {
		h.watch.Action(e.Type, e.Object)
	}
	h.pending = nil
}

// runEvictions runs f in a bubble with a controller that has run for a while. guarded false is upstream.
func runEvictions(t *testing.T, guarded bool, f func(e *evictions)) {
	runEvictionsWith(t, guarded, func(e *evictions) kubernetes.Interface { return e.client }, f)
}

// runEvictionsWith has the controller use another client.
func runEvictionsWith(t *testing.T, guarded bool, client func(e *evictions) kubernetes.Interface, f func(e *evictions)) {
	metrics.Register()
	synctest.Test(t, func(t *testing.T) {
		e := &evictions{t: t, client: fake.NewClientset(),
			pods: &heldWatch{watch: watch.NewRaceFreeFake()}, nodes: &heldWatch{watch: watch.NewRaceFreeFake()}}
		var cancel context.CancelFunc
		e.ctx, cancel = context.WithCancel(t.Context())
		for resource, held := range map[string]*heldWatch{"pods": e.pods, "nodes": e.nodes} {
			e.client.PrependWatchReactor(resource, func(k8stesting.Action) (bool, watch.Interface, error) {
				held.mu.Lock()
				defer held.mu.Unlock()
				held.begun++
				return true, held.watch, nil
			})
		}
		e.client.PrependReactor("get", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.reads++
			if e.down {
				return true, nil, errors.New("no server")
			}
			return false, nil, nil
		})
		e.client.PrependReactor("delete", "pods", e.precondition)
		e.client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			return e.refuse.Load(), nil, errors.New("no server")
		})
		if guarded {
			consistency.SetProvider(func(_ string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
				return guardStore{consistency.NewNoopConsistencyStore(), e, stores[nodesResource].(cache.Store)}
			})
			defer consistency.SetProvider(nil)
		}
		factory := informers.NewSharedInformerFactory(e.client, 0)
		pods := factory.Core().V1().Pods()
		require.NoError(t, pods.Informer().AddIndexers(cache.Indexers{"spec.nodeName": func(obj any) ([]string, error) {
			return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
		}}))
		controller, err := tainteviction.New(e.ctx, client(e), pods, factory.Core().V1().Nodes(), evictionController)
		require.NoError(t, err)
		factory.Start(e.ctx.Done())
		go controller.Run(e.ctx)
		time.Sleep(time.Second)
		f(e)
		cancel()
		factory.Shutdown()
		synctest.Wait()
		require.Zero(t, waiting(t), "evictions are said to wait, and none does")
	})
}

// precondition is what the server does with the precondition of a deletion.
func (e *evictions) precondition(action k8stesting.Action) (bool, runtime.Object, error) {
	del := action.(k8stesting.DeleteActionImpl)
	obj, err := e.client.Tracker().Get(del.GetResource(), del.GetNamespace(), del.GetName())
	if err != nil {
		return true, nil, err
	}
	pod := obj.(*corev1.Pod)
	if want := del.DeleteOptions.Preconditions; want != nil && *want.UID != pod.UID {
		return true, nil, fmt.Errorf("uid %s, not %s", pod.UID, *want.UID)
	}
	defer e.pods.send(watch.Deleted, pod)
	return false, nil, nil
}

// guardStore is a store with a guard for the test's world.
type guardStore struct {
	consistency.ConsistencyStore
	e     *evictions
	nodes cache.Store
}

func (s guardStore) GuardEvictions(ctx context.Context, evictor consistency.Evictor) consistency.EvictionGuard {
	s.e.guard = NewTaintGuard(ctx, Options{Controller: evictionController, Prove: s.e.prove, Budget: livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst),
		Report: func(_ types.NamespacedName, uid types.UID, message string) {
			s.e.mu.Lock()
			defer s.e.mu.Unlock()
			s.e.reports = append(s.e.reports, string(uid)+": "+message)
		}}, EvictorOf(evictor))
	s.e.guard.FollowRelists(s.nodes)
	return s.e.guard
}

// prove takes a fence's time, and tells the truth.
func (e *evictions) prove(_ context.Context, _ schema.GroupResource, asOf time.Time) freshness.Proof {
	require.False(e.t, asOf.After(time.Now()))
	time.Sleep(max(e.proof, 5*time.Millisecond))
	e.mu.Lock()
	down := e.down
	e.mu.Unlock()
	switch {
	case down:
		return freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonNoServer, Err: errors.New("no server")}
	case e.nodes.behind() > 0:
		return freshness.Proof{Outcome: freshness.Stale, Events: e.nodes.behind()}
	}
	return freshness.Proof{Outcome: freshness.Proven, At: time.Now()}
}

func (e *evictions) setDown(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
}

var nodeGVR, podGVR = corev1.SchemeGroupVersion.WithResource("nodes"), corev1.SchemeGroupVersion.WithResource("pods")

// taint sets the taints of the node, on the server and in its watch.
func (e *evictions) taint(taints ...corev1.Taint) { e.taintNode("node", taints...) }

func (e *evictions) taintNode(name string, taints ...corev1.Taint) {
	e.rv++
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), ResourceVersion: strconv.Itoa(e.rv)}, Spec: corev1.NodeSpec{Taints: taints}}
	node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "test", Time: &metav1.Time{Time: time.Now()}, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
	event := watch.Modified
	if _, err := e.client.Tracker().Get(nodeGVR, "", name); err != nil {
		event = watch.Added
		require.NoError(e.t, e.client.Tracker().Create(nodeGVR, node, ""))
	} else {
		require.NoError(e.t, e.client.Tracker().Update(nodeGVR, node, ""))
	}
	cached := node.DeepCopy()
	cached.ManagedFields = nil
	e.nodes.send(event, cached)
	e.settle()
}

// remove has the node gone.
func (e *evictions) remove() {
	node, err := e.client.Tracker().Get(nodeGVR, "", "node")
	require.NoError(e.t, err)
	require.NoError(e.t, e.client.Tracker().Delete(nodeGVR, "", "node"))
	e.nodes.send(watch.Deleted, node)
	e.settle()
}

func (e *evictions) settle() { synctest.Wait() }

func noExec(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
}

// pod puts a pod on the node that tolerates any taint for so long: 0 not at all, negative without limit; or as the
// tolerations say.
func (e *evictions) pod(name, uid string, tolerated time.Duration, tolerations ...corev1.Toleration) {
	e.podOn("node", name, uid, tolerated, tolerations...)
}

func (e *evictions) podOn(node, name, uid string, tolerated time.Duration, tolerations ...corev1.Toleration) {
	e.rv++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: strconv.Itoa(e.rv)}, Spec: corev1.PodSpec{NodeName: node}}
	switch seconds := int64(tolerated.Seconds()); {
	case tolerated > 0:
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}
	case tolerated < 0:
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if len(tolerations) > 0 {
		pod.Spec.Tolerations = tolerations
	}
	event := watch.Added
	if old, err := e.client.Tracker().Get(podGVR, "ns", name); err == nil {
		event = watch.Modified
		if old.(*corev1.Pod).UID != pod.UID {
			e.pods.send(watch.Deleted, old)
			event = watch.Added
		}
		require.NoError(e.t, e.client.Tracker().Update(podGVR, pod, "ns"))
	} else {
		require.NoError(e.t, e.client.Tracker().Create(podGVR, pod, "ns"))
	}
	e.pods.send(event, pod)
	e.settle()
}

// left counts the pods that the server has.
func (e *evictions) left() int {
	e.settle()
	pods, err := e.client.CoreV1().Pods("ns").List(e.ctx, metav1.ListOptions{})
	require.NoError(e.t, err)
	return len(pods.Items)
}

// after lets time pass and says how many pods are left then.
func (e *evictions) after(d time.Duration) int {
	time.Sleep(d)
	return e.left()
}

func waiting(t *testing.T) float64 { return waitingOf(t, evictionController) }

func waitingOf(t *testing.T, controller string) float64 {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "stale_controller_waiting_evictions" {
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == controller {
					return m.GetGauge().GetValue()
				}
			}
		}
	}
	return 0
}

func cancelled(t *testing.T, reason cancelReason) float64 {
	metrics.Register()
	initMetrics(evictionController)
	n, err := metricstest.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer, "stale_controller_cancelled_evictions_total",
		map[string]string{"controller": evictionController}, "reason")
	require.NoError(t, err)
	return n[string(reason)]
}

const moment = 50 * time.Millisecond

// TestTaintGoneUnseen is gap 1: the taint is gone, the watch does not tell, the tolerations run out.
func TestTaintGoneUnseen(t *testing.T) {
	for guarded, left := range map[bool]int{false: 0, true: 30} {
		t.Run(fmt.Sprintf("guarded=%t", guarded), func(t *testing.T) {
			before := cancelled(t, cancelNotTainted)
			runEvictions(t, guarded, func(e *evictions) {
				e.taint()
				for i := range 30 {
					e.pod(fmt.Sprint("pod", i), fmt.Sprint("uid", i), 10*time.Second)
				}
				e.taint(noExec("a"))
				e.nodes.hold()
				e.taint()
				require.Equal(t, 30, e.after(9*time.Second))
				require.Equal(t, left, e.after(5*time.Second))
				if !guarded {
					return
				}
				require.Equal(t, 1, e.reads, "one live read for all pods of the node")
				require.Equal(t, 30., cancelled(t, cancelNotTainted)-before)
				e.nodes.release()
				require.Equal(t, 30, e.after(10*time.Minute))
				e.taint(noExec("a"))
				require.Equal(t, 30, e.after(10*time.Second-moment))
				require.Equal(t, 0, e.after(2*moment), "evictions go on as before")
				require.Equal(t, 2, e.reads, "one check of the node, for all pods")
			})
		})
	}
}

func TestTaintedPodsAreEvictedOnTime(t *testing.T) {
	for name, tolerated := range map[string]time.Duration{"at once": 0, "later": time.Minute} {
		t.Run(name, func(t *testing.T) {
			runEvictions(t, true, func(e *evictions) {
				e.taint()
				for i := range 100 {
					e.pod(fmt.Sprint("pod", i), fmt.Sprint("uid", i), tolerated)
				}
				e.pod("forever", "forever", -1)
				e.taint(noExec("a"))
				if tolerated > 0 {
					require.Equal(t, 101, e.after(tolerated-moment))
				}
				require.Equal(t, 1, e.after(2*moment))
				require.Equal(t, 1, e.reads, "one check of the node, for all pods")
				for _, action := range e.client.Actions() {
					if del, ok := action.(k8stesting.DeleteActionImpl); ok {
						require.NotNil(t, del.DeleteOptions.Preconditions, "deleted by UID")
					}
				}
				e.taint(noExec("b"))
				e.pod("new", "new", tolerated)
				require.Equal(t, 1, e.after(tolerated+moment), "a pod that comes to a tainted node")
			})
		})
	}
}

// TestTaintedWhileCacheIsBehind: a live read that confirms the taint lets the eviction go on.
func TestTaintedWhileCacheIsBehind(t *testing.T) {
	runEvictions(t, true, func(e *evictions) {
		added := metav1.Time{Time: time.Now()}
		dead := corev1.Taint{Key: "dead", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}
		e.taint()
		e.pod("pod", "uid", time.Minute)
		e.taint(dead)
		e.nodes.hold()
		e.taint(dead, noExec("new"))
		require.Equal(t, 1, e.after(time.Minute-moment))
		require.Equal(t, 0, e.after(2*moment), "the taint that it was scheduled for is there still")
		require.Equal(t, 1, e.reads)
	})
}

// A pod whose node goes before its tolerations run out is evicted then, as on stock, so that its owner replaces it, and not by podgc a minute later.
func TestPodsOfANodeThatIsGoneAreEvictedOnTime(t *testing.T) {
	for name, c := range map[string]struct{ guarded, seen bool }{"stock": {false, true}, "seen": {true, true}, "not seen": {true, false}} {
		t.Run(name, func(t *testing.T) {
			runEvictions(t, c.guarded, func(e *evictions) {
				e.taint()
				e.pod("pod", "uid", time.Minute)
				e.taint(noExec("a"))
				if !c.seen {
					e.nodes.hold()
				}
				time.Sleep(10 * time.Second)
				e.remove()
				require.Equal(t, 1, e.after(50*time.Second-moment))
				require.Equal(t, 0, e.after(2*moment))
			})
		})
	}
}

func TestPodOfTheSameNameIsNotTouched(t *testing.T) {
	runEvictions(t, true, func(e *evictions) {
		e.taint()
		e.pod("pod", "old", 10*time.Second)
		e.taint(noExec("a"))
		e.pods.hold()
		e.pod("pod", "new", 10*time.Second)
		require.Equal(t, 1, e.after(15*time.Second), "not the pod that was due")
		e.pods.release()
		require.Equal(t, 1, e.after(10*time.Second-moment))
		require.Equal(t, 0, e.after(2*moment), "its own tolerations count from when it was seen")
	})
}

// TestPodReplacedInOneEvent: a relist shows the new pod as an update of the old one.
func TestPodReplacedInOneEvent(t *testing.T) {
	runEvictions(t, true, func(e *evictions) {
		e.taint()
		e.pod("pod", "old", 10*time.Second)
		e.taint(noExec("a"))
		time.Sleep(5 * time.Second)
		e.pods.hold()
		e.pod("pod", "new", 10*time.Second)
		e.pods.skip()
		e.pods.pending[0].Type = watch.Modified
		e.pods.release()
		require.Equal(t, 1, e.after(10*time.Second-moment))
		require.Equal(t, 0, e.after(2*moment))
	})
}

func TestLateTolerations(t *testing.T) {
	for name, tolerated := range map[string]time.Duration{"without end": -1, "for longer": time.Minute} {
		t.Run(name, func(t *testing.T) {
			runEvictions(t, true, func(e *evictions) {
				e.taint()
				e.pod("pod", "uid", 10*time.Second)
				e.taint(noExec("a"))
				e.pods.hold()
				e.pod("pod", "uid", tolerated)
				require.Equal(t, 1, e.after(time.Minute-moment))
				if tolerated > 0 {
					require.Equal(t, 0, e.after(2*moment))
					return
				}
				e.pods.release()
				require.Equal(t, 1, e.after(10*time.Minute))
			})
		})
	}
}

// TestTaintRemovedAndAddedAgain: the tolerations count from when it came back, or was seen to be back.
func TestTaintRemovedAndAddedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		released time.Duration
		evicted  time.Duration // after it came back
	}{
		"told before it is due": {released: time.Second, evicted: 11 * time.Second},
		"told after":            {released: time.Hour, evicted: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			runEvictions(t, true, func(e *evictions) {
				e.taint()
				e.pod("pod", "uid", 10*time.Second)
				e.taint(noExec("a"))
				e.nodes.hold()
				e.taint()
				time.Sleep(5 * time.Second)
				e.taint(noExec("a"))
				time.AfterFunc(tc.released, e.nodes.release)
				require.Equal(t, 1, e.after(tc.evicted-moment))
				require.Equal(t, 0, e.after(2*moment))
			})
		})
	}
}

// TestEvictionIsNotPutOffWithoutEnd: edits of the node that leave its taints alone put nothing off again.
func TestEvictionIsNotPutOffWithoutEnd(t *testing.T) {
	runEvictions(t, true, func(e *evictions) {
		e.taint()
		e.pod("pod", "uid", 10*time.Second)
		e.taint(noExec("a"))
		e.nodes.hold()
		e.taint(noExec("a"))
		live, err := e.client.Tracker().Get(nodeGVR, "", "node")
		require.NoError(t, err)
		for range 5 {
			time.Sleep(5 * time.Second)
			node := live.(*corev1.Node).DeepCopy()
			e.rv++
			node.ResourceVersion = strconv.Itoa(e.rv)
			require.NoError(t, e.client.Tracker().Update(nodeGVR, node, ""))
		}
		require.Equal(t, 0, e.left())
	})
}

// TestCancelledEvictionIsLookedAtAgain: the taint came back, and a relist shows no difference.
func TestCancelledEvictionIsLookedAtAgain(t *testing.T) {
	runEvictions(t, true, func(e *evictions) {
		e.taint()
		e.pod("pod", "uid", 10*time.Second)
		e.taint(noExec("a"))
		e.nodes.hold()
		e.taint()
		require.Equal(t, 1, e.after(20*time.Second), "cancelled")
		e.taint(noExec("a"))
		e.nodes.skip()
		require.Equal(t, 1, e.after(time.Minute))
		e.nodes.release()
		require.Equal(t, 0, e.after(maxEvictionDelay+10*time.Second+moment))
	})
}

func TestEvictionWaitsUntilSomethingIsKnown(t *testing.T) {
	for name, tainted := range map[string]bool{"tainted": true, "not tainted": false} {
		t.Run(name, func(t *testing.T) {
			runEvictions(t, true, func(e *evictions) {
				e.taint()
				for i := range 20 {
					e.pod(fmt.Sprint("pod", i), fmt.Sprint("uid", i), 10*time.Second)
				}
				e.taint(noExec("a"))
				if !tainted {
					e.nodes.hold()
					e.taint()
				}
				e.setDown(true)
				require.Equal(t, 20, e.after(time.Minute))
				require.Equal(t, 20., waiting(t))
				require.Empty(t, e.reports)
				require.Equal(t, 20, e.after(time.Hour))
				require.Len(t, e.reports, 20, "once on each pod")
				require.Contains(t, e.reports[0], "Eviction for a taint of node node has been due for 1m")
				require.Contains(t, e.reports[0], "no server")
				require.LessOrEqual(t, e.reads, 130, "one read for all pods, every 30 s")
				waits := e.guard.Waits()
				require.Len(t, waits, 20)
				require.Contains(t, waits[0].Object, "/pod")
				require.Equal(t, nodesResource, waits[0].Resource)
				require.Contains(t, waits[0].Why, "no server")
				require.InDelta(t, time.Hour+50*time.Second, time.Since(waits[0].Since), float64(5*time.Second), "since it was due")
				e.setDown(false)
				left := 0
				if !tainted {
					left = 20
				}
				require.Equal(t, left, e.after(maxEvictionDelay))
				require.Zero(t, waiting(t))
				require.Empty(t, e.guard.Waits())
			})
		})
	}
}

// TestWaitingEvictionIsCalledOff by the controller, when it gets the event.
func TestWaitingEvictionIsCalledOff(t *testing.T) {
	runEvictions(t, true, func(e *evictions) {
		e.taint()
		e.pod("pod", "uid", 0)
		e.setDown(true)
		e.taint(noExec("a"))
		require.Equal(t, 1, e.after(time.Second))
		require.Equal(t, 1., waiting(t))
		e.taint()
		require.Zero(t, waiting(t))
		e.setDown(false)
		require.Equal(t, 1, e.after(time.Hour))
		e.taint(noExec("a"))
		require.Equal(t, 0, e.after(moment))
	})
}

// TestEvictionSurvivesFailedRequests, where upstream gives up after 50 ms.
func TestEvictionSurvivesFailedRequests(t *testing.T) {
	runEvictions(t, true, func(e *evictions) {
		e.refuse.Store(true)
		e.taint()
		e.pod("pod", "uid", 0)
		e.taint(noExec("a"))
		require.Equal(t, 1, e.after(2*time.Minute))
		require.Equal(t, 1., waiting(t))
		require.Len(t, e.reports, 1)
		e.refuse.Store(false)
		require.Equal(t, 0, e.after(maxEvictionDelay))
	})
}

// slowEvictor is a controller whose requests take a second each.
type slowEvictor struct {
	Evictor
	node    atomic.Pointer[corev1.Node]
	evicted atomic.Int32
}

func (s *slowEvictor) CachedNode(string) (*corev1.Node, error) { return s.node.Load(), nil }

func (s *slowEvictor) Tolerated(context.Context, *corev1.Pod, []corev1.Taint) time.Duration { return 0 }

func (s *slowEvictor) Evicting(types.NamespacedName) {}

func (s *slowEvictor) Cancelled(types.NamespacedName) {}

func (s *slowEvictor) EvictPod(_ context.Context, _ types.NamespacedName, _ time.Time, _ int, confirm func(*corev1.Pod) error) error {
	time.Sleep(time.Second)
	err := confirm(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Spec: corev1.PodSpec{NodeName: "node"}})
	if err == nil {
		s.evicted.Add(1)
	}
	return err
}

// TestEvictionsAreBegunOnWhatIsKnownThen: the taint goes while evictions queue for the server.
func TestEvictionsAreBegunOnWhatIsKnownThen(t *testing.T) {
	metrics.Register()
	synctest.Test(t, func(t *testing.T) {
		evictor := &slowEvictor{}
		evictor.node.Store(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{noExec("a")}}})
		var proofs atomic.Int32
		guard := NewTaintGuard(t.Context(), Options{Controller: evictionController, Budget: livereads.NewBudget(0, 0), Prove: func(_ context.Context, _ schema.GroupResource, asOf time.Time) freshness.Proof {
			proofs.Add(1)
			return freshness.Proof{Outcome: freshness.Proven, At: asOf}
		}}, evictor)
		for range 100 {
			go guard.Evict(t.Context(), consistency.Eviction{UID: "uid", Node: "node"}, time.Now(), func() bool { return true })
		}
		time.Sleep(10 * time.Second)
		require.NotZero(t, evictor.evicted.Load())
		evictor.node.Store(&corev1.Node{})
		before := evictor.evicted.Load()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, evictor.evicted.Load()-before, int32(2*maxAtLimiter), "those within the age of a proof")
	})
}

func TestSameTaints(t *testing.T) {
	node := func(rv string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: rv}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	at := func(s int64) corev1.Taint {
		return corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: time.Unix(s, 0)}}
	}
	other := node("1", noExec("a"))
	other.UID = "other"
	for name, tc := range map[string]struct {
		before, after *corev1.Node
		live, want    bool
	}{
		"unchanged":                    {before: node("1", noExec("a")), after: node("1", noExec("a")), want: true},
		"changed, taint without time":  {before: node("1", noExec("a")), after: node("2", noExec("a"))},
		"the same, of two live reads":  {before: node("1", noExec("a")), after: node("2", noExec("a")), live: true, want: true},
		"another, of two live reads":   {before: node("1", noExec("a")), after: node("2", noExec("b")), live: true},
		"changed, taint of same time":  {before: node("1", at(1)), after: node("2", at(1), noExec("b")), want: true},
		"changed, taint of later time": {before: node("1", at(1)), after: node("2", at(2))},
		"another node":                 {before: other, after: node("1", noExec("a")), live: true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, sameTaints(tc.before, tc.after, tc.live))
		})
	}
	require.True(t, strings.HasPrefix(nodeView{live: true}.String(), "live read"))
}
