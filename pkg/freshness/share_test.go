// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// gate stops requests until they are let go.
func (w *world) gate(match func(*http.Request) bool) (release func()) {
	open := make(chan struct{})
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.api.arrived = func(r *http.Request) {
		if match(r) {
			<-open
		}
	}
	return sync.OnceFunc(func() { close(open) })
}

func TestHundredCallersShareOneFence(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		release := w.gate(isFence)
		asOf := time.Now()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { w.requireProven(w.prove(asOf), methodFence) })
		}
		synctest.Wait()
		require.Equal(w, 1, w.api.count(isFence))
		release()
		callers.Wait()
		require.Len(w, w.api.requests, 1)
	})
}

func TestLaterCallersShareTheNextFence(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		release := w.gate(isFence)
		before := time.Now()
		var callers sync.WaitGroup
		callers.Go(func() { w.requireProven(w.prove(before), methodFence) })
		synctest.Wait()
		time.Sleep(time.Millisecond)
		callers.Go(func() {
			fence, err := w.p.FenceSince(w.Context(), leases, before)
			require.NoError(w, err)
			require.Equal(w, before, fence.TakenAt)
		})
		synctest.Wait()
		time.Sleep(time.Millisecond) // the first is sent: it is too old for those who ask from now on
		after := time.Now()
		for range 50 {
			callers.Go(func() {
				proof := w.prove(after)
				require.True(w, proof.Fresh())
				require.False(w, proof.At.Before(after))
			})
			callers.Go(func() {
				fence, err := w.p.Fence(w.Context(), leases)
				require.NoError(w, err)
				require.False(w, fence.TakenAt.Before(after))
			})
			callers.Go(func() { require.True(w, w.prove(before).Fresh()) })
		}
		synctest.Wait()
		require.Equal(w, 1, w.api.count(isFence), "one in flight")
		release()
		callers.Wait()
		require.Len(w, w.api.requests, 2)
	})
}

func TestCallerLeavesAlone(t *testing.T) {
	for name, match := range map[string]func(*http.Request) bool{"fence": isFence, "list": isList} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.api.bump(50)
				release := w.gate(match)
				ctx, cancel := context.WithCancelCause(w.Context())
				asOf := time.Now()
				var callers sync.WaitGroup
				callers.Go(func() { // the one that starts the work
					proof, err := w.p.Prove(ctx, leases, asOf)
					require.ErrorIs(w, err, errLeft)
					w.requireUnknown(proof, ReasonTimeout)
				})
				time.Sleep(time.Millisecond)
				synctest.Wait()
				callers.Go(func() { w.requireProven(w.prove(asOf), methodList) })
				time.Sleep(time.Second)
				cancel(errLeft)
				synctest.Wait()
				release()
				callers.Wait()
				require.Equal(w, 1, w.api.count(match))
			})
		})
	}
}

var errLeft = errors.New("left")

func TestQuietProofIsShared(t *testing.T) {
	for name, small := range map[string]int{"list": 0, "watch": -1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{SmallCollection: small}, func(w *world) {
				w.api.bump(50)
				asOf := time.Now()
				var callers sync.WaitGroup
				for range 100 {
					callers.Go(func() { require.True(w, w.prove(asOf).Fresh()) })
				}
				callers.Wait()
				require.Len(w, w.api.requests, 2)
			})
		})
	}
}

func TestClose(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.arrived = func(r *http.Request) { <-r.Context().Done() }
		done := make(chan Proof)
		go func() { done <- w.prove(time.Now()) }()
		synctest.Wait()
		w.p.Close()
		require.Equal(w, Unknown, (<-done).Outcome)
		w.requireUnknown(w.prove(time.Now()), reasonClosed)
		_, err := w.p.Fence(w.Context(), leases)
		var failed *Error
		require.ErrorAs(w, err, &failed)
		require.Equal(w, reasonClosed, failed.Reason)
	})
}

func TestFedFenceMakesAProofFree(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		sent := w.send()
		w.view.show(w.api.write("ns/a", "uid", false))
		w.wrote(111, sent)
		w.requireProven(w.prove(sent.At), methodEarlier)
		require.Empty(w, w.api.requests)

		// One that the cache has not passed spares the request.
		time.Sleep(time.Second)
		sent = w.send()
		w.wrote(w.api.write("ns/a", "uid", false), sent)
		time.AfterFunc(time.Millisecond, func() { w.view.show(112) })
		w.requireProven(w.prove(time.Now()), methodWait)
		require.Empty(w, w.api.requests)

		// One taken too early proves nothing.
		time.Sleep(time.Second)
		w.requireProven(w.prove(time.Now()), methodFence)
	})
}

func TestFencesAreMany(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		begin := time.Now()
		for range 100 { // the monitor goes on while the cache is behind
			time.Sleep(5 * time.Second)
			w.api.write("ns/a", "uid", false)
			_, err := w.p.Fence(w.Context(), leases)
			require.NoError(w, err)
		}
		require.LessOrEqual(w, len(w.p.resource(leases).fences), maxFences)
		proof := w.prove(time.Now())
		require.Equal(w, Stale, proof.Outcome)
		require.Equal(w, uint64(100), proof.RVs)
		require.GreaterOrEqual(w, proof.AtLeast, time.Duration(0))
		require.LessOrEqual(w, proof.AtLeast, time.Since(begin))
	})
}

// A cache that lags passes one fence after the other, though more are taken within its lag than are kept.
func TestACacheThatLagsPassesFences(t *testing.T) {
	const lag, every = 10 * time.Second, 100 * time.Millisecond
	inWorld(t, Options{}, func(w *world) {
		for range 600 {
			time.Sleep(every)
			rv := w.api.write("ns/a", "uid", false)
			time.AfterFunc(lag, func() { w.view.show(rv) })
			_, err := w.p.Fence(w.Context(), leases)
			require.NoError(w, err)
		}
		known, ok := w.p.Known(leases)
		require.True(w, ok)
		require.Less(w, time.Since(known.At), lag+2*time.Second)
		time.Sleep(lag + time.Second)
	})
}

// What the tracker knew before a fence was sent is what makes its answer evidence: a write that is made while it is under way is none.
func TestTheTrackerGetsFences(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		rewinds := 0
		tracker := rvtracker.New(rvtracker.Options{OnRewind: func() { rewinds++ }, SameStore: func(schema.GroupResource) bool { return true }})
		source := tracker.Register(leases.GroupResource(), store)
		require.True(w, w.p.Track(leases, store, source))
		require.False(w, w.p.Track(leases, store, source), "once")
		_, err := w.p.Fence(w.Context(), leases)
		require.NoError(w, err)
		require.Zero(w, rewinds)
		w.api.restore(105)
		time.Sleep(time.Second)
		_, err = w.p.Fence(w.Context(), leases)
		require.NoError(w, err)
		ctx, cancel := context.WithCancel(w.Context())
		go tracker.Run(ctx)
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Equal(w, 1, rewinds)
		require.True(w, w.p.Untrack(leases, source))
		require.False(w, w.p.Untrack(leases, source))
		_, known := w.p.Lookup(leases.GroupResource())
		require.False(w, known)
	})
}

func TestFencer(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		rv, err := w.p.Fencer().Fence(w.Context(), leases.GroupResource())
		require.NoError(w, err)
		require.Equal(w, "110", rv)
		_, err = w.p.Fencer().Fence(w.Context(), schema.GroupResource{Resource: "others"})
		require.ErrorIs(w, err, errNotRegistered)
		require.ErrorIs(w, err, rvtracker.ErrUnprovable)
		time.Sleep(time.Second)
		w.fail(isFence, 500, "", nil)
		_, err = w.p.Fencer().Fence(w.Context(), leases.GroupResource())
		require.Error(w, err)
		require.NotErrorIs(w, err, rvtracker.ErrUnprovable)
		time.Sleep(time.Second)
		w.fail(isFence, 403, "Forbidden", nil)
		_, err = w.p.Fencer().Fence(w.Context(), leases.GroupResource())
		require.ErrorIs(w, err, rvtracker.ErrUnprovable)
	})
}

// counted keeps what the prover reports.
type counted struct {
	noMetrics
	mu      sync.Mutex
	fences  int
	bytes   int
	rewinds int
}

func (c *counted) Fence(schema.GroupVersionResource, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fences++
}

func (c *counted) Bytes(_ schema.GroupVersionResource, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += n
}

func (c *counted) Rewind(schema.GroupVersionResource) { c.rewinds++ }

func TestMetrics(t *testing.T) {
	m := &counted{}
	inWorld(t, Options{Metrics: m}, func(w *world) {
		w.prove(time.Now())
		w.api.bump(10)
		time.Sleep(time.Second)
		w.prove(time.Now())
		w.api.write("ns/a", "uid", false)
		w.view.sync(w.api.bump(0))
		w.fail(isFence, 500, "", nil)
		time.Sleep(time.Second)
		w.prove(time.Now())
		require.Equal(w, 3, m.fences, "one of them failed")
		require.Greater(w, m.bytes, 100)
	})
}

func TestStoreView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		called := errors.New("called")
		view := &storeView{store, func(context.Context, string) error { return called }}
		api := &fakeAPI{}
		require.Zero(t, view.Len())
		store.Add(api.object(change{rv: 7, key: "ns/a", uid: "u"}))
		store.Add(api.object(change{rv: 9, key: "b", uid: "v"}))
		require.Equal(t, "9", view.ResourceVersion())
		require.Equal(t, 2, view.Len())
		got := map[string]object{}
		view.Each(func(key string, uid types.UID, rv string) { got[key] = object{uid, rv} })
		require.Equal(t, map[string]object{"ns/a": {"u", "7"}, "b": {"v", "9"}}, got)
		require.ErrorIs(t, view.WaitFor(t.Context(), "1"), called)
	})
}
