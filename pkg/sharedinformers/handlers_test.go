// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/tainteviction"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// A new group of APIs in client-go needs a line in wrappedfactory.go.
func TestEveryTypedInformerIsHandled(t *testing.T) {
	h := NewHandlers()
	factory := h.Factory(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	// Methods without arguments that return an interface.
	methods := func(v reflect.Value) (out []reflect.Value) {
		for _, method := range v.Methods() {
			if m := method.Type(); m.NumIn() == 0 && m.NumOut() == 1 && m.Out(0).Kind() == reflect.Interface {
				out = append(out, method)
			}
		}
		return out
	}
	found := 0
	for _, group := range methods(reflect.ValueOf(factory)) {
		if !strings.HasPrefix(group.Type().Out(0).PkgPath(), "k8s.io/client-go/informers/") {
			continue
		}
		for _, version := range methods(group.Call(nil)[0].Elem()) {
			for _, kind := range methods(version.Call(nil)[0].Elem()) {
				informer := kind.Call(nil)[0].Elem().MethodByName("Informer").Call(nil)[0].Interface().(cache.SharedIndexInformer)
				known := len(h.Deliveries(informer.GetStore()))
				_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
				require.NoError(t, err)
				require.Len(t, h.Deliveries(informer.GetStore()), known+1, kind.Type().String())
				found++
			}
		}
	}
	require.Greater(t, found, 70)
	generic, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods"))
	require.NoError(t, err)
	_, err = generic.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{})
	require.NoError(t, err)
	require.Len(t, h.Deliveries(factory.Core().V1().Pods().Informer().GetStore()), 2, "whoever asks, it is the same")
}

func TestHandlersAreNamedByPackage(t *testing.T) {
	for function, want := range map[string]string{
		"k8s.io/kubernetes/pkg/controller/tainteviction.New":                              "tainteviction",
		"k8s.io/kubernetes/pkg/controller/volume/attachdetach.NewAttachDetachController":  "volume/attachdetach",
		"k8s.io/kubernetes/pkg/controller/garbagecollector.(*GraphBuilder).controllerFor": "garbagecollector",
		"k8s.io/dynamic-resource-allocation/resourceslice/tracker.StartTracker.func1":     "dynamic-resource-allocation/resourceslice/tracker",
		"main.main": "main",
	} {
		require.Equal(t, want, packageName(function))
	}

	client := fake.NewClientset()
	typed := informers.NewSharedInformerFactory(client, 0)
	h := NewHandlers()
	factory := h.Factory(typed)
	core := factory.Core().V1()
	_, err := tainteviction.New(t.Context(), client, core.Pods(), core.Nodes(), "taint-eviction-controller")
	require.NoError(t, err)
	replication.NewReplicationManager(t.Context(), core.Pods(), core.ReplicationControllers(), client, 10) // Its handlers are wrapped for conversion.
	_, err = cache.NewTypedSharedIndexInformer[*corev1.Node](core.Nodes().Informer()).AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.Node]{})
	require.NoError(t, err)
	observed := h.ObserveFactory(informerfactory.NewInformerFactory(typed, metadatainformer.NewSharedInformerFactory(metadatafake.NewSimpleMetadataClient(metadataScheme(t)), 0)))
	widgets, err := observed.ForResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	require.NoError(t, err)
	for _, informer := range []cache.SharedIndexInformer{core.Secrets().Informer(), widgets.Informer()} {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
		require.NoError(t, err)
		_, err = informer.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{}, time.Hour)
		require.NoError(t, err)
	}
	names := func(informer cache.SharedIndexInformer) (out []string) {
		for _, d := range h.Deliveries(informer.GetStore()) {
			out = append(out, d.Name())
		}
		slices.Sort(out)
		return out
	}
	const own = "github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers"
	require.Equal(t, []string{"replicaset", "tainteviction"}, names(core.Pods().Informer()))
	require.Equal(t, []string{own, "tainteviction"}, names(core.Nodes().Informer()))
	require.Equal(t, []string{"replication"}, names(core.ReplicationControllers().Informer()))
	require.Equal(t, []string{own, own}, names(core.Secrets().Informer()))
	require.Equal(t, []string{own, own}, names(widgets.Informer()))
}

// podServer is a server of pods.
type podServer struct {
	mu     sync.Mutex
	rv     int
	pods   []*corev1.Pod
	stream *watch.FakeWatcher
}

func podAt(name string, rv int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: strconv.Itoa(rv)}}
}

func (c *podServer) listerWatcher() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.rv)}}
			for _, p := range c.pods {
				list.Items = append(list.Items, *p)
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if options.SendInitialEvents != nil && *options.SendInitialEvents {
				return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
			}
			c.stream = watch.NewFakeWithChanSize(20_000, false)
			return c.stream, nil
		},
	}
}

// changes updates one pod n times.
func (c *podServer) changes(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.rv++
		c.pods[0] = podAt("a", c.rv)
		c.stream.Modify(c.pods[0])
	}
}

func (c *podServer) bookmark(rv int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv = rv
	c.stream.Action(watch.Bookmark, podAt("", rv))
}

// relist has the informer relist the pods, as of rv.
func (c *podServer) relist(rv int, pods ...*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv, c.pods = rv, pods
	c.stream.Action(watch.Error, &apierrors.NewResourceExpired("compacted").ErrStatus)
}

// silent is a server that answers no probe.
type silent struct{}

var errSilent = &freshness.Error{Reason: freshness.ReasonNoServer, Err: errors.New("no server")}

func (silent) Fence(context.Context, schema.GroupVersionResource) (freshness.Fence, error) {
	return freshness.Fence{}, errSilent
}

func (silent) AwaitFence(context.Context, schema.GroupVersionResource, time.Time, time.Duration) (freshness.Proof, bool) {
	return freshness.Proof{}, false
}

func (silent) ProveByList(context.Context, schema.GroupVersionResource, time.Time, time.Duration) (freshness.Proof, error) {
	return freshness.Proof{}, errSilent
}

func (silent) ProveByWatch(context.Context, schema.GroupVersionResource, time.Time) (freshness.Proof, error) {
	return freshness.Proof{}, errSilent
}

func (silent) Known(schema.GroupVersionResource) (freshness.Proof, bool) {
	return freshness.Proof{}, false
}

// termOf shows a monitor on the page.
type termOf struct{ *stalenessmonitor.Monitor }

func (termOf) Waits(*stalenessz.Longest) {}

func (termOf) Recorded() int { return 0 }

// handled is a monitored informer of pods in a bubble.
type handled struct {
	server   *podServer
	informer cache.SharedIndexInformer
	monitor  *stalenessmonitor.Monitor
	ctx      context.Context
	running  sync.WaitGroup
	logMu    sync.Mutex
	logged   strings.Builder
}

func testHandled(t *testing.T, resync time.Duration, test func(t *testing.T, h *handled)) {
	t.Helper()
	metrics.Register()
	synctest.Test(t, func(t *testing.T) {
		h := &handled{server: &podServer{rv: 10, pods: []*corev1.Pod{podAt("a", 3)}}}
		handlers := NewHandlers()
		h.informer = handlers.informer(cache.NewSharedIndexInformer(h.server.listerWatcher(), &corev1.Pod{}, resync, cache.Indexers{}))
		gvr := corev1.SchemeGroupVersion.WithResource("pods")
		h.monitor = stalenessmonitor.New(stalenessmonitor.Options{
			Prover: silent{}, Metrics: &metrics.Staleness{},
			Informers: func() map[schema.GroupVersionResource]stalenessmonitor.Informer {
				return map[schema.GroupVersionResource]stalenessmonitor.Informer{gvr: h.informer}
			},
			Register: func(schema.GroupVersionResource, stalenessmonitor.Informer) {},
			Handlers: func(i stalenessmonitor.Informer) []*stalenessmonitor.Delivery {
				return handlers.Deliveries(i.GetStore())
			},
		})
		logger := funcr.New(func(_, args string) {
			h.logMu.Lock()
			defer h.logMu.Unlock()
			h.logged.WriteString(args + "\n")
		}, funcr.Options{})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		h.ctx = ctx
		h.running.Go(func() { h.monitor.Run(ctx) })
		test(t, h)
		cancel()
		h.running.Wait()
	})
}

// add adds a handler that takes a time for each event.
func (h *handled) add(t *testing.T, takes time.Duration) cache.ResourceEventHandlerRegistration {
	t.Helper()
	work := func() { time.Sleep(takes) }
	registration, err := h.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { work() }, UpdateFunc: func(any, any) { work() }, DeleteFunc: func(any) { work() },
	})
	require.NoError(t, err)
	return registration
}

func (h *handled) start() {
	h.running.Go(func() { h.informer.RunWithContext(h.ctx) })
	time.Sleep(2 * time.Second)
}

// behind is how far the slowest handler is behind.
func (h *handled) behind(t *testing.T) stalenessmonitor.Handler {
	t.Helper()
	synctest.Wait()
	handlers := h.monitor.Caches()[0].Handlers
	require.Len(t, handlers, 1)
	return handlers[0]
}

func (h *handled) log() string {
	synctest.Wait()
	h.logMu.Lock()
	defer h.logMu.Unlock()
	return h.logged.String()
}

func (h *handled) page() string {
	p := &stalenessz.Page{Monitoring: true}
	p.Add(termOf{h.monitor})
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, stalenessz.Path+"?format=text", nil))
	return w.Body.String()
}

// The store has 10,000 changes at once, and a handler takes 10 ms for each.
func TestABacklogIsSeen(t *testing.T) {
	testHandled(t, 0, func(t *testing.T, h *handled) {
		h.add(t, 0)
		h.add(t, 10*time.Millisecond)
		h.start()
		require.Zero(t, h.behind(t).Lag)
		require.Contains(t, h.page(), "0 of 1 event handlers behind")
		h.server.changes(10_000)
		began, last := time.Now(), time.Duration(0)
		for range 95 {
			time.Sleep(time.Second)
			got := h.behind(t)
			require.InDelta(t, time.Since(began).Seconds(), got.Lag.Seconds(), 1, "as long as the handler lacks what the store has had since then")
			require.False(t, got.Stalled, "it moves")
			last = got.Lag
		}
		require.Greater(t, last, 90*time.Second)
		require.Regexp(t, `1 of 1 event handlers behind(?s:.*)fresh-kcm/pkg/sharedinformers +pods +1m3[0-9]s +yes +[0-9]+ +[0-9]+ +10010`, h.page())
		require.Equal(t, 1, strings.Count(h.log(), "An event handler is behind its informer's cache"), "told once")
		time.Sleep(7 * time.Second)
		require.Zero(t, h.behind(t).Lag)
		require.Equal(t, "10010", h.behind(t).Delivered)
		require.Equal(t, 1, strings.Count(h.log(), "An event handler has caught up"))
		require.Contains(t, h.page(), "0 of 1 event handlers behind")
	})
}

// A handler that hangs and one that is slow are distinguished.
func TestAHandlerThatHangs(t *testing.T) {
	testHandled(t, 0, func(t *testing.T, h *handled) {
		h.add(t, time.Minute)
		h.start()
		got := h.behind(t)
		require.Positive(t, got.Lag, "its first list counts")
		require.Empty(t, got.Delivered)
		time.Sleep(10 * time.Second)
		require.True(t, h.behind(t).Stalled)
		require.Contains(t, h.page(), "no ")
		time.Sleep(time.Minute)
		require.Zero(t, h.behind(t).Lag)
		h.server.changes(1)
		time.Sleep(30 * time.Second)
		require.True(t, h.behind(t).Stalled)
		require.InDelta(t, 30, h.behind(t).Lag.Seconds(), 2)
	})
}

// What does not make a handler late: nothing but bookmarks, lists, resyncs, a restored server, and a busy resource.
func TestNoHandlerIsCalledLateWithoutNeed(t *testing.T) {
	for name, test := range map[string]func(c *podServer, second int){
		"quiet":     func(*podServer, int) {},
		"bookmarks": func(c *podServer, second int) { c.bookmark(100 + second) },
		"busy":      func(c *podServer, _ int) { c.changes(50) },
		"relists": func(c *podServer, second int) {
			if second%30 == 5 {
				c.relist(1000+second, podAt("b", 700), podAt("c", 500+second))
			}
		},
		"restored": func(c *podServer, second int) {
			switch {
			case second < 20:
				c.changes(5)
			case second == 20:
				c.relist(7, podAt("a", 6))
			case second > 60:
				c.changes(1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testHandled(t, 15*time.Second, func(t *testing.T, h *handled) {
				h.add(t, 0)
				h.start()
				for second := range 120 {
					test(h.server, second)
					time.Sleep(time.Second)
					require.Zero(t, h.behind(t).Lag, "after %d s", second)
				}
				require.NotContains(t, h.log(), "An event handler is behind")
			})
		})
	}
}

// A handler that is added late is behind until it has its list; one that was removed is not shown.
func TestHandlersComeAndGo(t *testing.T) {
	testHandled(t, 0, func(t *testing.T, h *handled) {
		h.add(t, 0)
		h.start()
		late := h.add(t, 20*time.Second)
		time.Sleep(15 * time.Second)
		require.Positive(t, h.behind(t).Lag)
		require.False(t, late.HasSynced())
		time.Sleep(10 * time.Second)
		require.Zero(t, h.behind(t).Lag)
		require.True(t, late.HasSynced())
		h.server.changes(100)
		time.Sleep(10 * time.Second)
		require.Positive(t, h.behind(t).Lag)
		require.NoError(t, h.informer.RemoveEventHandler(late))
		time.Sleep(2 * time.Second)
		require.Zero(t, h.behind(t).Lag)
	})
}

// Whoever asked for bookmarks still gets them, and a handler that tells how far it is costs nothing more.
func TestTellingHandler(t *testing.T) {
	var asked string
	d := stalenessmonitor.NewDelivery("x")
	h := tellingHandler{cache.ResourceEventHandlerFuncs{BookmarkFunc: func(rv string) { asked = rv }}, d}
	h.GetBookmarkFunc()("7")
	require.Equal(t, "7", asked)
	require.EqualValues(t, 7, d.Position())
	h.OnAdd(podAt("a", 9), true)
	require.EqualValues(t, 7, d.Position(), "a list has no order")
	h.OnAdd(podAt("a", 9), false)
	require.EqualValues(t, 9, d.Position())
	h.OnDelete(podAt("a", 10))
	require.EqualValues(t, 10, d.Position())
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: podAt("a", 11)})
	require.EqualValues(t, 10, d.Position(), "what a list lacks was deleted at no version that is known")
	was, is := any(podAt("a", 11)), any(podAt("a", 12))
	require.Zero(t, testing.AllocsPerRun(100, func() { h.OnUpdate(was, is) }))

	var order []uint64
	slow := tellingHandler{cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { order = append(order, d.Position()) }}, d}
	slow.OnUpdate(is, podAt("a", 13))
	require.Equal(t, []uint64{12}, order, "its position moves after the handler has returned")
}
