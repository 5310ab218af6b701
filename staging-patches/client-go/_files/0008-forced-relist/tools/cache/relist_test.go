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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
)

// restoredSource is a bookmarkSource that can be down, and that notes at which resource versions it was
// asked for lists. It accepts watches at any resource version and tells them nothing, as a server does
// whose resource versions went backward.
type restoredSource struct {
	bookmarkSource
	lock  sync.Mutex
	down  error
	asked []string
}

func (s *restoredSource) fail(err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.down = err
}

// restore replaces the snapshot without telling any watch.
func (s *restoredSource) restore(rv string, pods ...*v1.Pod) {
	s.bookmarkSource.lock.Lock()
	defer s.bookmarkSource.lock.Unlock()
	s.rv, s.pods = rv, pods
}

func (s *restoredSource) ask(options metav1.ListOptions, list bool) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.down == nil && (list || options.SendInitialEvents != nil) {
		s.asked = append(s.asked, options.ResourceVersion)
	}
	return s.down
}

func (s *restoredSource) lists() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func (s *restoredSource) listerWatcher() ListerWatcher {
	lw := s.bookmarkSource.listerWatcher().(*ListWatch)
	list, watches := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if err := s.ask(options, true); err != nil {
			return nil, err
		}
		return list(ctx, options)
	}
	lw.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		if err := s.ask(options, false); err != nil {
			return nil, err
		}
		return watches(ctx, options)
	}
	return lw
}

// forEachRelist runs an informer in a bubble, on a server that was at 10 and is put back to 7.
func forEachRelist(t *testing.T, f func(t *testing.T, source *restoredSource, log *bookmarkLog)) {
	requireAtomicFIFO(t)
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%t", watchList), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			synctest.Test(t, func(t *testing.T) {
				source := &restoredSource{bookmarkSource: bookmarkSource{rv: "10", pods: []*v1.Pod{bookmarkPod("a", "3"), bookmarkPod("b", "9")}}}
				log := &bookmarkLog{}
				informer := NewSharedIndexInformer(source.listerWatcher(), &v1.Pod{}, 0, Indexers{})
				// The default handler's limit of errors does not know of the bubble's time.
				if err := informer.SetWatchErrorHandler(func(*Reflector, error) {}); err != nil {
					t.Fatal(err)
				}
				addInBubble(t, informer, ResourceEventHandlerFuncs{
					UpdateFunc:   func(_, obj any) { log.add("update", obj) },
					DeleteFunc:   func(obj any) { log.add("delete", obj) },
					BookmarkFunc: func(rv string) { log.record("bookmark " + rv) },
				})
				runInBubble(t, informer.RunWithContext)
				log.expect(t, "initial list", "bookmark 10")
				source.lists()
				source.restore("7", bookmarkPod("a", "6"))
				f(t, source, log)
				if rv := informer.LastSyncResourceVersion(); rv != "7" {
					t.Errorf("the next watch would start at %s", rv)
				}
			})
		})
	}
}

func expectLists(t *testing.T, source *restoredSource, want ...string) {
	t.Helper()
	if got := source.lists(); !slices.Equal(got, want) {
		t.Errorf("listed at %q, want %q", got, want)
	}
}

var wantRestored = []string{"delete b@", "update a@6", "bookmark 7"}

func TestRelistDuringAWatch(t *testing.T) {
	forEachRelist(t, func(t *testing.T, source *restoredSource, log *bookmarkLog) {
		before := source.watch
		time.Sleep(time.Hour)
		log.expect(t, "nobody asked")
		expectLists(t, source)
		if n := RelistReflectors(); n < 1 {
			t.Errorf("told %d reflectors", n)
		}
		log.expect(t, "at once", wantRestored...)
		expectLists(t, source, "")
		if !before.IsStopped() {
			t.Error("the watch in progress was left open")
		}
		source.watch.Modify(bookmarkPod("a", "8"))
		log.expect(t, "the new watch", "update a@8")
		source.watch.Modify(bookmarkPod("a", "7"))
		log.expect(t, "nothing is left over", "update a@7")
	})
}

// A reflector that lost its connection resumes its watch where it was. It may wait for minutes before it
// tries again.
func TestRelistDuringABackoff(t *testing.T) {
	forEachRelist(t, func(t *testing.T, source *restoredSource, log *bookmarkLog) {
		source.fail(errors.New("down"))
		source.watch.Stop()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		source.fail(nil)
		RelistReflectors()
		log.expect(t, "at once", wantRestored...)
		expectLists(t, source, "")
	})
}

func TestRelistFromAServerThatIsDown(t *testing.T) {
	forEachRelist(t, func(t *testing.T, source *restoredSource, log *bookmarkLog) {
		source.fail(errors.New("down"))
		RelistReflectors()
		log.expect(t, "down")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		source.fail(nil)
		time.Sleep(2 * time.Minute) // More than the longest backoff.
		log.expect(t, "up again", wantRestored...)
		expectLists(t, source, "")
	})
}

// Whatever the list in progress brings, it began before the relist was asked for.
func TestRelistDuringAList(t *testing.T) {
	requireAtomicFIFO(t)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, false)
	synctest.Test(t, func(t *testing.T) {
		source := &restoredSource{bookmarkSource: bookmarkSource{rv: "10", ready: make(chan struct{})}}
		log := &bookmarkLog{}
		informer := NewSharedIndexInformer(source.listerWatcher(), &v1.Pod{}, 0, Indexers{})
		addInBubble(t, informer, ResourceEventHandlerFuncs{BookmarkFunc: func(rv string) { log.record("bookmark " + rv) }})
		runInBubble(t, informer.RunWithContext)
		expectLists(t, source, "0")
		RelistReflectors()
		synctest.Wait()
		expectLists(t, source, "")
		source.restore("7")
		close(source.ready)
		log.expect(t, "the list asked for, alone", "bookmark 7")
	})
}

func TestStoppedReflectorIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := RelistReflectors()
		source := &restoredSource{bookmarkSource: bookmarkSource{rv: "10"}}
		reflector := NewReflector(source.listerWatcher(), &v1.Pod{}, NewStore(MetaNamespaceKeyFunc), 0)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { reflector.RunWithContext(ctx) })
		synctest.Wait()
		if n := RelistReflectors(); n != before+1 {
			t.Errorf("told %d reflectors, want %d", n, before+1)
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if n := RelistReflectors(); n != before {
			t.Errorf("told %d reflectors, want %d", n, before)
		}
		if reflector.isLastSyncResourceVersionUnavailable {
			t.Error("a stopped reflector would list as upstream's does if it ran again")
		}
	})
}
