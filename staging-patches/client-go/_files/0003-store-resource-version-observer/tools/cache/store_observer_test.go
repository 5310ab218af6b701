// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/klog/v2"
)

func observe(store Store, fn func(string)) {
	store.(ResourceVersionObservable).AddResourceVersionObserver(fn)
}

func TestStoreObserver(t *testing.T) {
	requireAtomicFIFO(t)
	noKey := errors.New("no key")
	keyFunc := func(obj any) (string, error) {
		if pod, ok := obj.(*v1.Pod); ok && pod.Name == "" {
			return "", noKey
		}
		return DeletionHandlingMetaNamespaceKeyFunc(obj)
	}
	transaction := func(txns ...Transaction) func(Store) {
		return func(s Store) { s.(TransactionStore).Transaction(txns...) }
	}
	for name, tc := range map[string]struct {
		change func(Store)
		want   []string
		keys   []string
	}{
		"add":      {func(s Store) { s.Add(bookmarkPod("b", "11")) }, []string{"11"}, []string{"a", "b"}},
		"update":   {func(s Store) { s.Update(bookmarkPod("a", "11")) }, []string{"11"}, []string{"a"}},
		"delete":   {func(s Store) { s.Delete(bookmarkPod("a", "11")) }, []string{"11"}, nil},
		"replace":  {func(s Store) { s.Replace([]any{bookmarkPod("c", "2")}, "11") }, []string{"11"}, []string{"c"}},
		"bookmark": {func(s Store) { s.Bookmark("11") }, []string{"11"}, []string{"a"}},
		"rewind":   {func(s Store) { s.Replace(nil, "4") }, []string{"4"}, nil},
		"opaque":   {func(s Store) { s.Bookmark("x1") }, []string{"x1"}, []string{"a"}},
		"one call for a transaction": {transaction(
			Transaction{Type: TransactionTypeAdd, Object: bookmarkPod("b", "11")},
			Transaction{Type: TransactionTypeUpdate, Object: bookmarkPod("b", "12")},
			Transaction{Type: TransactionTypeDelete, Object: bookmarkPod("a", "13")},
		), []string{"13"}, []string{"b"}},
		"empty transaction":                  {transaction(), nil, nil},
		"no resource version":                {func(s Store) { s.Add(bookmarkPod("b", "")) }, nil, nil},
		"replace without a resource version": {func(s Store) { s.Replace(nil, "") }, nil, nil},
		"tombstone":                          {func(s Store) { s.Delete(DeletedFinalStateUnknown{Key: "a"}) }, nil, nil},
		"no key":                             {func(s Store) { s.Add(bookmarkPod("", "11")) }, nil, nil},
		"read":                               {func(s Store) { s.List() }, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			store := NewStore(keyFunc)
			store.Replace([]any{bookmarkPod("a", "3")}, "10")
			var got []string
			observe(store, func(rv string) {
				got = append(got, rv)
				if lock := &store.(*cache).cacheStorage.(*threadSafeMap).lock; !lock.TryLock() {
					t.Fatal("the store is locked: fn cannot read it")
				} else {
					lock.Unlock()
				}
				if last := store.LastStoreSyncResourceVersion(); last != rv {
					t.Errorf("observed %s, but the store is at %s", rv, last)
				}
				keys := store.ListKeys()
				slices.Sort(keys)
				if !slices.Equal(keys, tc.keys) {
					t.Errorf("fn finds %q, want %q", keys, tc.keys)
				}
			})
			tc.change(store)
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStoreObserversInOrderOfAdding(t *testing.T) {
	requireAtomicFIFO(t)
	store := NewIndexer(MetaNamespaceKeyFunc, Indexers{NamespaceIndex: MetaNamespaceIndexFunc})
	var got []string
	add := func(name string) { observe(store, func(rv string) { got = append(got, name+rv) }) }
	store.Bookmark("1")
	add("a")
	add("b")
	store.Bookmark("2")
	add("c")
	store.Bookmark("3")
	if want := []string{"a2", "b2", "a3", "b3", "c3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each observer added beside a writer gets a gapless tail of what the writer
// did, which starts no later than what the store says once it has been added.
func TestStoreObserverAddedDuringChanges(t *testing.T) {
	requireAtomicFIFO(t)
	const adders, changes = 8, 2000
	store := NewStore(MetaNamespaceKeyFunc)
	var wg sync.WaitGroup
	seen := make([][]int, adders)
	after := make([]int, adders)
	for i := range adders {
		wg.Go(func() {
			for reached := 0; reached < (i+1)*changes/(adders+1); runtime.Gosched() {
				reached, _ = strconv.Atoi(store.LastStoreSyncResourceVersion())
			}
			observe(store, func(rv string) {
				n, _ := strconv.Atoi(rv)
				seen[i] = append(seen[i], n)
			})
			after[i], _ = strconv.Atoi(store.LastStoreSyncResourceVersion())
		})
	}
	for n := range changes {
		store.Add(bookmarkPod("a", strconv.Itoa(n+1)))
	}
	wg.Wait()
	store.Bookmark(strconv.Itoa(changes + 1))
	for i := range adders {
		first := seen[i][0]
		if first > after[i]+1 {
			t.Errorf("observer %d missed what came between %d and %d", i, after[i], first)
		}
		for j, n := range seen[i] {
			if n != first+j {
				t.Fatalf("observer %d: %d after %d calls from %d", i, n, j, first)
			}
		}
		if last := seen[i][len(seen[i])-1]; last != changes+1 {
			t.Errorf("observer %d ended at %d", i, last)
		}
	}
}

func TestStoreObserverNotCalledForHalfAChange(t *testing.T) {
	requireAtomicFIFO(t)
	for name, change := range map[string]func(Store){
		"add":     func(s Store) { s.Add(bookmarkPod("b", "11")) },
		"replace": func(s Store) { s.Replace([]any{bookmarkPod("b", "11")}, "11") },
	} {
		t.Run(name, func(t *testing.T) {
			broken := func(any) ([]string, error) { return nil, errors.New("broken index") }
			store := NewIndexer(MetaNamespaceKeyFunc, Indexers{"broken": broken})
			store.Bookmark("10")
			observe(store, func(rv string) { t.Errorf("observed %s", rv) })
			defer func() {
				if recover() == nil {
					t.Error("the index function's error must panic")
				}
				store.List() // Not locked any more.
			}()
			change(store)
		})
	}
}

func TestStoreObserverWithoutAtomicFIFO(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.AtomicFIFO, false)
	store := NewStore(MetaNamespaceKeyFunc)
	unexpected := func(rv string) { t.Errorf("observed %s", rv) }
	observe(store, unexpected)
	store.(ResourceVersionObservable).AddReplaceObserver(unexpected)
	store.Bookmark("10")
	store.Replace(nil, "11")
}

// Who must not read a mix of the times before and after a list has to know of it before it shows.
func TestReplaceObserverPrecedesTheList(t *testing.T) {
	requireAtomicFIFO(t)
	store := NewIndexer(MetaNamespaceKeyFunc, Indexers{})
	var got []string
	for _, name := range []string{"a", "b"} {
		store.(ResourceVersionObservable).AddReplaceObserver(func(rv string) {
			lock := &store.(*cache).cacheStorage.(*threadSafeMap).lock
			if !lock.TryLock() {
				t.Fatal("the store is locked: fn cannot read it")
			}
			lock.Unlock()
			got = append(got, fmt.Sprintf("%s%s@%s%q", name, rv, store.LastStoreSyncResourceVersion(), store.ListKeys()))
		})
	}
	store.Replace([]any{bookmarkPod("x", "3")}, "10")
	store.Add(bookmarkPod("y", "11"))
	store.Delete(bookmarkPod("x", "12"))
	store.Bookmark("15")
	store.Replace(nil, "")
	if want := []string{"a10@[]", "b10@[]", `a@15["y"]`, `b@15["y"]`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStoreObserverOfInformer(t *testing.T) {
	requireAtomicFIFO(t)
	synctest.Test(t, func(t *testing.T) {
		source := &bookmarkSource{rv: "10", pods: []*v1.Pod{bookmarkPod("a", "3")}}
		informer := NewSharedIndexInformer(source.listerWatcher(), &v1.Pod{}, 0, Indexers{})
		log := &bookmarkLog{}
		observe(informer.GetStore(), log.record)
		runInBubble(t, informer.RunWithContext)
		log.expect(t, "initial list", "10")
		source.watch.Modify(bookmarkPod("a", "11"))
		log.expect(t, "event", "11")
		source.bookmark("15")
		log.expect(t, "bookmark", "15")
		source.relist("40")
		log.expect(t, "relist", "40")
		source.relist("7")
		log.expect(t, "restored server", "7")
	})
}

// The store must be seen to move no later than a handler: a handler's delivered
// version never passes what the observers know.
func TestStoreObserverPrecedesHandlers(t *testing.T) {
	requireAtomicFIFO(t)
	log := &bookmarkLog{}
	store := NewStore(DeletionHandlingMetaNamespaceKeyFunc)
	observe(store, func(rv string) { log.record("store " + rv) })
	deltas := Deltas{
		{Type: ReplacedAll, Object: ReplacedAllInfo{ResourceVersion: "10", Objects: []any{bookmarkPod("a", "3")}}},
		{Type: Updated, Object: bookmarkPod("a", "11")},
		{Type: Bookmark, Object: BookmarkInfo{ResourceVersion: "15"}},
	}
	if err := processDeltas(klog.Background(), log.handler(), store, deltas, true, DeletionHandlingMetaNamespaceKeyFunc); err != nil {
		t.Fatal(err)
	}
	batch := []Delta{{Type: Updated, Object: bookmarkPod("a", "16")}, {Type: Added, Object: bookmarkPod("b", "17")}}
	if err := processDeltasInBatch(klog.Background(), log.handler(), store, batch, false, DeletionHandlingMetaNamespaceKeyFunc); err != nil {
		t.Fatal(err)
	}
	want := []string{"store 10", "add a@3", "bookmark 10", "store 11", "update a@11", "store 15", "bookmark 15", "store 17", "update a@16", "add b@17"}
	if !slices.Equal(log.events, want) {
		t.Errorf("got %q, want %q", log.events, want)
	}
}

func BenchmarkStoreObserver(b *testing.B) {
	for _, observers := range []int{0, 1, 3} {
		b.Run(fmt.Sprintf("observers=%d", observers), func(b *testing.B) {
			store := NewStore(MetaNamespaceKeyFunc)
			var calls int
			for range observers {
				observe(store, func(string) { calls++ })
			}
			pods := []*v1.Pod{bookmarkPod("a", "1000001"), bookmarkPod("a", "1000002")}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				store.Update(pods[i%2])
			}
		})
	}
}
