// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/klog/v2"
)

// bookmarkSource is a ListerWatcher over one snapshot, which a relist reads again, and one watch.
type bookmarkSource struct {
	lock  sync.Mutex
	rv    string
	pods  []*v1.Pod
	watch *watch.FakeWatcher
	// ready, if set, holds back every list until it is closed.
	ready chan struct{}
}

func bookmarkPod(name, rv string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rv}}
}

func (s *bookmarkSource) bookmark(rv string) { s.watch.Action(watch.Bookmark, bookmarkPod("", rv)) }

// relist makes the informer list again, and find pods at rv.
func (s *bookmarkSource) relist(rv string, pods ...*v1.Pod) {
	s.lock.Lock()
	s.rv, s.pods = rv, pods
	s.lock.Unlock()
	s.watch.Action(watch.Error, &apierrors.NewResourceExpired("compacted").ErrStatus)
	time.Sleep(time.Minute) // The reflector's backoff, in the bubble's time.
	synctest.Wait()
}

func (s *bookmarkSource) listerWatcher() ListerWatcher {
	return &ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			if s.ready != nil {
				<-s.ready
			}
			s.lock.Lock()
			defer s.lock.Unlock()
			list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: s.rv}}
			for _, pod := range s.pods {
				list.Items = append(list.Items, *pod)
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			s.lock.Lock()
			defer s.lock.Unlock()
			s.watch = watch.NewFakeWithChanSize(100, false)
			if options.SendInitialEvents != nil && *options.SendInitialEvents {
				for _, pod := range s.pods {
					s.watch.Add(pod)
				}
				end := bookmarkPod("", s.rv)
				end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
				s.watch.Action(watch.Bookmark, end)
			}
			return s.watch, nil
		},
	}
}

// bookmarkLog records what one handler is called with.
type bookmarkLog struct {
	lock   sync.Mutex
	events []string
	// calls is counted without the lock: the race detector objects if
	// BookmarkFunc has another goroutine than the other functions.
	calls int
	// hold, if set, blocks the handler in the event with resource version holdRV.
	hold   chan struct{}
	holdRV string
}

func (l *bookmarkLog) add(what string, obj any) {
	name, err := DeletionHandlingObjectToName(obj)
	if err != nil {
		panic(err)
	}
	rv := ""
	if pod, ok := obj.(*v1.Pod); ok {
		rv = pod.ResourceVersion
	}
	if l.hold != nil && rv == l.holdRV {
		<-l.hold
	}
	l.record(what + " " + name.Name + "@" + rv)
}

func (l *bookmarkLog) record(event string) {
	l.calls++
	l.lock.Lock()
	defer l.lock.Unlock()
	l.events = append(l.events, event)
}

func (l *bookmarkLog) handler() ResourceEventHandlerFuncs {
	return ResourceEventHandlerFuncs{
		AddFunc:      func(obj any) { l.add("add", obj) },
		UpdateFunc:   func(_, obj any) { l.add("update", obj) },
		DeleteFunc:   func(obj any) { l.add("delete", obj) },
		BookmarkFunc: func(rv string) { l.record("bookmark " + rv) },
	}
}

// expect checks what was recorded since it was called last.
func (l *bookmarkLog) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	l.lock.Lock()
	defer l.lock.Unlock()
	if !slices.Equal(l.events, want) {
		t.Errorf("%s: got %q, want %q", when, l.events, want)
	}
	l.events = nil
}

// runInBubble runs an informer until the end of the bubble.
func runInBubble(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	synctest.Wait()
}

func startSharedInBubble(t *testing.T, source *bookmarkSource, resync time.Duration, handlers ...ResourceEventHandler) (SharedIndexInformer, []ResourceEventHandlerRegistration) {
	informer := NewSharedIndexInformer(source.listerWatcher(), &v1.Pod{}, resync, Indexers{})
	var registrations []ResourceEventHandlerRegistration
	for _, handler := range handlers {
		registrations = append(registrations, addInBubble(t, informer, handler))
	}
	runInBubble(t, informer.RunWithContext)
	return informer, registrations
}

func addInBubble(t *testing.T, informer SharedIndexInformer, handler ResourceEventHandler) ResourceEventHandlerRegistration {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		t.Fatal(err)
	}
	return registration
}

// startPlainInBubble starts an informer without a processor: the handler runs where deltas are processed.
func startPlainInBubble(t *testing.T, source *bookmarkSource, resync time.Duration, handler ResourceEventHandler) Controller {
	_, controller := NewInformerWithOptions(InformerOptions{
		ListerWatcher: source.listerWatcher(),
		ObjectType:    &v1.Pod{},
		Handler:       handler,
		ResyncPeriod:  resync,
	})
	runInBubble(t, controller.RunWithContext)
	return controller
}

// forEachInformer calls f in a bubble for shared and plain informers, which get their
// list from a watch or from a list request. start returns the handler's HasSynced.
func forEachInformer(t *testing.T, f func(t *testing.T, start func(source *bookmarkSource, resync time.Duration, handler ResourceEventHandler) func() bool)) {
	for _, shared := range []bool{true, false} {
		for _, watchList := range []bool{true, false} {
			t.Run(fmt.Sprintf("shared=%t,watchList=%t", shared, watchList), func(t *testing.T) {
				clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
				synctest.Test(t, func(t *testing.T) {
					f(t, func(source *bookmarkSource, resync time.Duration, handler ResourceEventHandler) func() bool {
						if shared {
							_, registrations := startSharedInBubble(t, source, resync, handler)
							return registrations[0].HasSynced
						}
						return startPlainInBubble(t, source, resync, handler).HasSynced
					})
				})
			})
		}
	}
}

func requireAtomicFIFO(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.AtomicFIFO, true)
}

func TestBookmarkFuncFollowsEvents(t *testing.T) {
	requireAtomicFIFO(t)
	forEachInformer(t, func(t *testing.T, start func(*bookmarkSource, time.Duration, ResourceEventHandler) func() bool) {
		source := &bookmarkSource{rv: "10", pods: []*v1.Pod{bookmarkPod("a", "3")}}
		log := &bookmarkLog{hold: make(chan struct{}), holdRV: "11"}
		start(source, 0, log.handler())
		log.expect(t, "initial list", "add a@3", "bookmark 10")

		// While the handler is busy with the first event, a plain informer collects
		// the next two for one batch and a shared one collects notifications.
		source.watch.Modify(bookmarkPod("a", "11"))
		synctest.Wait()
		source.watch.Add(bookmarkPod("b", "12"))
		source.watch.Add(bookmarkPod("c", "13"))
		source.bookmark("15")
		source.watch.Modify(bookmarkPod("a", "16"))
		source.bookmark("20")
		source.watch.Delete(bookmarkPod("c", "21"))
		log.expect(t, "busy handler")
		close(log.hold)
		log.expect(t, "pending events", "update a@11", "add b@12", "add c@13", "bookmark 15", "update a@16", "bookmark 20", "delete c@21")

		source.relist("40", bookmarkPod("a", "31"))
		log.expect(t, "relist", "delete b@", "update a@31", "bookmark 40")

		source.relist("7", bookmarkPod("a", "6"))
		log.expect(t, "restored server", "update a@6", "bookmark 7")
		source.bookmark("8")
		log.expect(t, "after the restore", "bookmark 8")

		source.relist("9")
		log.expect(t, "empty relist", "delete a@", "bookmark 9")
	})
}

func TestBookmarkFuncNotCalledByResync(t *testing.T) {
	requireAtomicFIFO(t)
	forEachInformer(t, func(t *testing.T, start func(*bookmarkSource, time.Duration, ResourceEventHandler) func() bool) {
		log := &bookmarkLog{}
		start(&bookmarkSource{rv: "10", pods: []*v1.Pod{bookmarkPod("a", "3")}}, time.Minute, log.handler())
		log.expect(t, "initial list", "add a@3", "bookmark 10")
		time.Sleep(90 * time.Second)
		log.expect(t, "resync", "update a@3")
	})
}

func TestBookmarkFuncPrecedesHasSynced(t *testing.T) {
	requireAtomicFIFO(t)
	for _, pods := range [][]*v1.Pod{nil, {bookmarkPod("a", "3")}} {
		t.Run(fmt.Sprintf("pods=%d", len(pods)), func(t *testing.T) {
			forEachInformer(t, func(t *testing.T, start func(*bookmarkSource, time.Duration, ResourceEventHandler) func() bool) {
				entered, release := false, make(chan struct{})
				hasSynced := start(&bookmarkSource{rv: "10", pods: pods}, 0, ResourceEventHandlerFuncs{BookmarkFunc: func(string) {
					entered = true
					<-release
				}})
				if !entered || hasSynced() {
					t.Errorf("during BookmarkFunc: entered %t, HasSynced %t", entered, hasSynced())
				}
				close(release)
				synctest.Wait()
				if !hasSynced() {
					t.Error("HasSynced must be true after BookmarkFunc")
				}
			})
		})
	}
}

func TestBookmarkFuncOfLateHandler(t *testing.T) {
	requireAtomicFIFO(t)
	synctest.Test(t, func(t *testing.T) {
		source := &bookmarkSource{rv: "10", pods: []*v1.Pod{bookmarkPod("a", "3")}}
		first := &bookmarkLog{}
		informer, _ := startSharedInBubble(t, source, 0, first.handler())
		source.bookmark("15")
		first.expect(t, "first handler", "add a@3", "bookmark 10", "bookmark 15")

		late := &bookmarkLog{hold: make(chan struct{}), holdRV: "3"}
		registration := addInBubble(t, informer, late.handler())
		synctest.Wait()
		if registration.HasSynced() {
			t.Error("HasSynced before the late handler has got its list")
		}
		source.watch.Modify(bookmarkPod("a", "16"))
		source.bookmark("20")
		synctest.Wait()
		close(late.hold)
		late.expect(t, "late handler", "add a@3", "bookmark 15", "update a@16", "bookmark 20")
		first.expect(t, "first handler", "update a@16", "bookmark 20")
		if !registration.HasSynced() {
			t.Error("the late handler has not synced")
		}

		// The store's version is that of the last event, if no bookmark came after it.
		source.watch.Modify(bookmarkPod("a", "21"))
		synctest.Wait()
		later := &bookmarkLog{}
		addInBubble(t, informer, later.handler())
		later.expect(t, "later handler", "add a@21", "bookmark 21")
	})
}

func TestBookmarkFuncOfHandlerAddedBeforeTheList(t *testing.T) {
	requireAtomicFIFO(t)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, false)
	synctest.Test(t, func(t *testing.T) {
		source := &bookmarkSource{rv: "10", pods: []*v1.Pod{bookmarkPod("a", "3")}, ready: make(chan struct{})}
		informer, _ := startSharedInBubble(t, source, 0)
		log := &bookmarkLog{}
		addInBubble(t, informer, log.handler())
		log.expect(t, "no list yet")
		close(source.ready)
		log.expect(t, "list", "add a@3", "bookmark 10")
	})
}

func TestBookmarkFuncWithoutAtomicFIFO(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.AtomicFIFO, false)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.UnlockWhileProcessingFIFO, false)
	forEachInformer(t, func(t *testing.T, start func(*bookmarkSource, time.Duration, ResourceEventHandler) func() bool) {
		source := &bookmarkSource{rv: "10", pods: []*v1.Pod{bookmarkPod("a", "3")}}
		log := &bookmarkLog{}
		hasSynced := start(source, 0, log.handler())
		source.bookmark("15")
		source.relist("40", bookmarkPod("a", "31"))
		log.expect(t, "gate off", "add a@3", "update a@31")
		if !hasSynced() {
			t.Error("HasSynced must not wait for a bookmark that never comes")
		}
	})
}

func TestBookmarkFuncIgnoresEmptyResourceVersion(t *testing.T) {
	log := &bookmarkLog{}
	store := NewStore(DeletionHandlingMetaNamespaceKeyFunc)
	deltas := Deltas{{Type: ReplacedAll, Object: ReplacedAllInfo{}}, {Type: Bookmark, Object: BookmarkInfo{}}}
	if err := processDeltas(klog.Background(), log.handler(), store, deltas, true, DeletionHandlingMetaNamespaceKeyFunc); err != nil {
		t.Fatal(err)
	}
	if len(log.events) > 0 {
		t.Errorf("got %q", log.events)
	}
}

// failingStore cannot take a relist.
type failingStore struct{ Store }

func (failingStore) Replace([]interface{}, string) error { return errors.New("full") }

func TestBookmarkFuncNotCalledAfterFailedRelist(t *testing.T) {
	log := &bookmarkLog{}
	store := failingStore{NewStore(DeletionHandlingMetaNamespaceKeyFunc)}
	deltas := Deltas{{Type: ReplacedAll, Object: ReplacedAllInfo{ResourceVersion: "10"}}}
	if err := processDeltas(klog.Background(), log.handler(), store, deltas, true, DeletionHandlingMetaNamespaceKeyFunc); err == nil {
		t.Error("the relist must fail")
	}
	if len(log.events) > 0 {
		t.Errorf("got %q", log.events)
	}
}

// embeddingHandler overrides what it got by embedding an adapter that does not ask.
type embeddingHandler struct {
	ResourceEventHandlerFuncs
	bookmark func(string)
}

func (h embeddingHandler) GetBookmarkFunc() func(string) { return h.bookmark }

// bookmarkHandlers returns a handler of each kind, which passes bookmarks to f and no object through its filter.
func bookmarkHandlers(f func(string)) map[string]ResourceEventHandler {
	typed := func(h TypedResourceEventHandler[*v1.Pod]) ResourceEventHandler {
		return &typedResourceEventHandler[*v1.Pod]{h}
	}
	none := func(any) bool { return false }
	noPod := func(*v1.Pod) bool { return false }
	return map[string]ResourceEventHandler{
		"funcs":           ResourceEventHandlerFuncs{BookmarkFunc: f},
		"pointer":         &ResourceEventHandlerFuncs{BookmarkFunc: f},
		"detailed":        ResourceEventHandlerDetailedFuncs{BookmarkFunc: f},
		"filtering":       FilteringResourceEventHandler{none, ResourceEventHandlerFuncs{BookmarkFunc: f}},
		"filtered twice":  FilteringResourceEventHandler{none, &FilteringResourceEventHandler{none, &ResourceEventHandlerDetailedFuncs{BookmarkFunc: f}}},
		"typed":           typed(TypedResourceEventHandlerFuncs[*v1.Pod]{BookmarkFunc: f}),
		"typed pointer":   typed(&TypedResourceEventHandlerFuncs[*v1.Pod]{BookmarkFunc: f}),
		"typed detailed":  typed(TypedResourceEventHandlerDetailedFuncs[*v1.Pod]{BookmarkFunc: f}),
		"typed filtering": typed(TypedFilteringResourceEventHandler[*v1.Pod]{noPod, TypedResourceEventHandlerFuncs[*v1.Pod]{BookmarkFunc: f}}),
		"embedding":       embeddingHandler{bookmark: f},
	}
}

func TestBookmarkFuncOfEveryHandlerKind(t *testing.T) {
	requireAtomicFIFO(t)
	for name := range bookmarkHandlers(nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &bookmarkSource{rv: "10", pods: []*v1.Pod{bookmarkPod("a", "3")}}
				log := &bookmarkLog{}
				handler := bookmarkHandlers(log.record)[name]
				startSharedInBubble(t, source, 0, handler)
				source.bookmark("15")
				log.expect(t, name, "10", "15")
			})
		})
	}
}

func TestBookmarkNotQueuedForHandlersThatDoNotAsk(t *testing.T) {
	handlers := bookmarkHandlers(nil)
	handlers["interface not implemented"] = &testListener{}
	for name, handler := range handlers {
		t.Run(name, func(t *testing.T) {
			listener := newProcessListener(klog.Background(), handler, 0, 0, time.Now(), 1, newMockSynced(t, true))
			listener.addCh = make(chan interface{}, 1)
			var notification interface{} = BookmarkInfo{ResourceVersion: "10"}
			for range 3 {
				listener.add(notification)
				if len(listener.addCh) > 0 {
					t.Fatal("a notification was queued")
				}
			}
			if allocs := testing.AllocsPerRun(100, func() { listener.add(notification) }); allocs > 0 {
				t.Errorf("%v allocations", allocs)
			}
			listener.syncTracker.UpstreamHasSynced()
			if !listener.HasSynced() {
				t.Error("HasSynced waits for a bookmark that nobody asked for")
			}
		})
	}
}
