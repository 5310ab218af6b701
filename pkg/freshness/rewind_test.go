// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// restore brings the server back to an earlier RV.
func (a *fakeAPI) restore(rv int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.history) > 0 && a.history[len(a.history)-1].rv > rv {
		a.history = a.history[:len(a.history)-1]
	}
	a.rv = rv
}

func TestRewind(t *testing.T) {
	for _, tc := range []struct {
		name  string
		small int
		to    int // the server restored, from 160
		since int // changes to other resources before anybody asks
		// after the rewind was found: what the store does, and what is said then
		then   func(w *world)
		want   Outcome
		method string
		reason Reason
	}{
		{name: "the store keeps the old history", to: 105, want: Unknown, reason: ReasonRewind},
		{name: "the same, large", small: -1, to: 105, want: Unknown, reason: ReasonRewind},
		{
			name: "the store is relisted", small: -1, to: 105,
			then: func(w *world) { w.view.sync(w.api.bump(0)) },
			want: Proven, method: methodFence,
		}, {
			name: "the store is relisted, and stale again", small: -1, to: 105,
			then: func(w *world) {
				w.view.sync(w.api.bump(0))
				w.api.write("ns/a", "uid", false)
			},
			want: Stale, method: methodWatch,
		}, {
			name: "the server outruns the store, which goes on without going back", small: -1, to: 105,
			then: func(w *world) { w.api.bump(200) },
			want: Unknown, reason: ReasonRewind,
		}, {
			name: "the same, small: the list shows the difference", to: 105,
			then: func(w *world) { w.api.bump(200) },
			want: Unknown, reason: ReasonRewind,
		}, {
			name: "nothing of the store was lost, the list shows it", to: 120,
			want: Proven, method: methodList,
		}, {
			name: "the same, and a list fills the store", small: -1, to: 105,
			then: func(w *world) { w.view.sync(w.api.bump(200)) },
			want: Proven, method: methodFence,
		}, {
			name: "an event that was queued comes", small: -1, to: 105,
			then: func(w *world) { w.view.set("112", w.view.objects) },
			want: Unknown, reason: ReasonRewind,
		}, {
			name: "the store is below the fence, but of the old history", to: 105, since: 10,
			then: func(w *world) { w.api.write("ns/j", "uid", false) },
			want: Unknown, reason: ReasonRewind,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &counted{}
			opts := Options{SmallCollection: tc.small, Metrics: m}
			inWorld(t, opts, func(w *world) {
				if tc.small < 0 {
					w.p.opts.SmallCollection = 3 // less than there are
				}
				w.api.bump(50)
				before := time.Now()
				require.True(w, w.prove(before).Fresh())
				time.Sleep(time.Second)
				w.api.restore(tc.to)
				w.api.bump(tc.since)
				w.takeFence()
				require.Equal(w, 1, m.rewinds)
				if tc.then != nil {
					tc.then(w)
				}
				time.Sleep(time.Second)
				proof := w.prove(time.Now())
				require.Equal(w, tc.want, proof.Outcome, proof.String())
				require.Equal(w, tc.reason, proof.Reason)
				require.Equal(w, tc.method, proof.Method)
				if proof = w.prove(before); proof.Fresh() {
					require.True(w, proof.At.After(before), "earlier proofs are void")
				}
				require.Equal(w, 1, m.rewinds)
			})
		})
	}
}

// A restore that no read asks about before the versions have outgrown the old ones is not seen.
func TestARestoreThatVersionsHaveOutgrown(t *testing.T) {
	for name, tc := range map[string]struct {
		since   int
		rewinds int
	}{
		"asked about before": {since: 10, rewinds: 1},
		"outgrown":           {since: 200},
	} {
		t.Run(name, func(t *testing.T) {
			m := &counted{}
			inWorld(t, Options{Metrics: m}, func(w *world) {
				w.api.bump(50)
				require.True(w, w.prove(time.Now()).Fresh())
				w.api.restore(105) // The store has what came after that.
				w.api.bump(tc.since)
				time.Sleep(time.Second)
				w.takeFence()
				require.Equal(w, tc.rewinds, m.rewinds)
			})
		})
	}
}

func TestRewindFoundByTheStoresRV(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.restore(105)
		w.requireUnknown(w.prove(time.Now()), ReasonRewind)
		w.view.sync(105)
		time.Sleep(time.Second)
		require.True(w, w.prove(time.Now()).Fresh())
	})
}

// The answer to a write that is not past what was known when it was sent is no fence.
func TestAnAnswerThatIsNotPastWhatWasKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		prove bool
		rv    int
	}{
		"below the store":             {rv: 109},
		"at the store":                {rv: 110},
		"below a fence":               {prove: true, rv: 115},
		"below one that is longer":    {rv: 99},
		"past what was known (taken)": {prove: true, rv: 121},
	} {
		t.Run(name, func(t *testing.T) {
			m := &counted{}
			inWorld(t, Options{Metrics: m}, func(w *world) {
				if tc.prove {
					w.api.bump(10)
					require.True(w, w.prove(time.Now()).Fresh())
				}
				time.Sleep(time.Second)
				before := len(w.p.resource(leases).fences)
				w.wrote(tc.rv, w.send())
				require.Equal(w, tc.rv == 121, len(w.p.resource(leases).fences) > before)
				require.Zero(w, m.rewinds, "a fence has to say")
			})
		})
	}
}

func TestOverlappingFencesAreNoRewind(t *testing.T) {
	m := &counted{}
	inWorld(t, Options{Metrics: m}, func(w *world) {
		sent := w.send()
		w.api.write("ns/a", "uid", false) // 111
		time.Sleep(time.Second)
		w.view.show(w.api.write("ns/b", "uid", false))
		require.True(w, w.prove(time.Now()).Fresh())
		// Sent before the other's answer was known, so it may well be lower.
		w.wrote(111, sent)
		require.Zero(w, m.rewinds)
		require.True(w, w.prove(sent.At).Fresh())
	})
}

func TestRewindUnderAWrite(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		// Its answer is of the old server, and comes when the rewind is known.
		old := w.send()
		w.view.show(w.api.write("ns/a", "uid", false))
		time.Sleep(time.Second)
		require.True(w, w.prove(time.Now()).Fresh())
		w.api.restore(105)
		w.takeFence()
		w.wrote(111, old)
		require.Len(w, w.p.resource(leases).fences, 1)
		time.Sleep(time.Second)
		w.requireUnknown(w.prove(old.At), ReasonRewind)
	})
}

// A fence that was sent before a rewind was found may never prove what is in the cache after it.
func TestRewindUnderAFence(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		r := w.p.resource(leases)
		old := r.beginFence()
		w.api.restore(105)
		w.takeFence()
		w.view.sync(105)
		_, f := r.endFence(old, "105")
		require.NotNil(w, f)
		require.Equal(w, ReasonRewind, f.reason)
		require.Len(w, r.fences, 1)
	})
}

// The cache was relisted before anybody looked at it again.
func TestWhatWasProvenBeforeARewindIsVoid(t *testing.T) {
	inWorld(t, Options{SmallCollection: -1}, func(w *world) {
		w.api.bump(50)
		r := w.p.resource(leases)
		before := w.takeFence()
		require.True(w, r.settled(quiet{base: "105", upTo: "160"}, before))
		source := r.trackedBy()
		_, err := source.ObserveFence(source.BeginFence(), "108")
		require.NoError(w, err)
		w.view.sync(107)
		require.True(w, r.trusts())
		require.Empty(w, r.fences)
		require.Equal(w, "107", r.position("107"))
	})
}

// A fence whose answer the source has judged, and that comes when a rewind was found since, or the cache is another source's.
func TestAFenceThatIsNotedLate(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		r := w.p.resource(leases)
		late, source := w.takeFence(), r.trackedBy()
		w.api.restore(105)
		now := w.takeFence()
		require.False(w, r.note(source, late))
		require.Equal(w, []Fence{now}, r.fences)
		track(w.p, leases, w.view)
		require.False(w, r.note(source, late))
		require.Empty(w, r.fences)
	})
}

// Another resource has shown a rewind: what was proven before it is void, though no fence of this one is below what was known.
func TestADoubtedCacheProvesNothing(t *testing.T) {
	m := &counted{}
	inWorld(t, Options{SmallCollection: -1, Metrics: m}, func(w *world) {
		tracker := rvtracker.New(rvtracker.Options{Fencer: w.p.Fencer(), OnRewind: func() {}, SameStore: func(schema.GroupResource) bool { return true }})
		trackBy(tracker, w.p, leases, w.view)
		other := newView(w.api)
		source := tracker.Register(schema.GroupResource{Resource: "pods"}, other)
		other.show(110)
		before := w.takeFence()
		require.True(w, first(w.p.Known(leases)).Fresh())

		_, err := source.ObserveFence(source.BeginFence(), "105")
		require.NoError(w, err)
		proof, known := w.p.Known(leases)
		require.False(w, known)
		w.requireUnknown(proof, ReasonRewind)
		require.Empty(w, w.p.resource(leases).fences)
		w.p.opts.SmallCollection = 0
		time.Sleep(time.Second)
		w.requireUnknown(w.prove(time.Now()), ReasonRewind)
		w.view.sync(110)
		proof, _ = w.p.Known(leases)
		require.True(w, proof.At.After(before.TakenAt))
		require.Zero(w, m.rewinds)
	})
}

// The server refuses every read of a resource after a restore: its owners are reconciled in the end, and nothing is proven by its cache all the same.
func TestADoubtedCacheThatIsUsedProvesNothing(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		tracker := rvtracker.New(rvtracker.Options{Fencer: w.p.Fencer(), OnRewind: func() {}})
		controller := trackBy(tracker, w.p, leases, w.view)
		other := newView(w.api)
		source := tracker.Register(schema.GroupResource{Resource: "pods"}, other)
		other.show(110)
		ctx, cancel := context.WithCancel(w.Context())
		var running sync.WaitGroup
		running.Go(func() { tracker.Run(ctx) })
		defer func() {
			cancel()
			running.Wait()
		}()
		synctest.Wait()
		w.takeFence()
		w.fail(func(*http.Request) bool { return true }, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, nil)

		_, err := source.ObserveFence(source.BeginFence(), "105")
		require.NoError(w, err)
		require.Error(w, controller.EnsureReady(types.NamespacedName{Name: "owner"}))
		time.Sleep(rvtracker.OwnerLimits.Unknown + 2*time.Second)
		require.NoError(w, controller.EnsureReady(types.NamespacedName{Name: "owner"}))
		require.Equal(w, Unknown, w.prove(time.Now().Add(-time.Minute)).Outcome)
		_, known := w.p.Known(leases)
		require.False(w, known)
	})
}

// doubting is a cache during whose next fence another resource shows a rewind.
type doubting struct {
	*fakeView
	doubt func()
}

func (v *doubting) LastStoreSyncResourceVersion() string {
	if doubt := v.doubt; doubt != nil {
		v.doubt = nil
		doubt()
	}
	return v.fakeView.LastStoreSyncResourceVersion()
}

// doubtable is a world with a cache that can be doubted.
func doubtable(t *testing.T, opts Options, f func(w *world, view *doubting, doubt func())) {
	inWorld(t, opts, func(w *world) {
		tracker := rvtracker.New(rvtracker.Options{OnRewind: func() {}, SameStore: func(schema.GroupResource) bool { return true }})
		view, other := &doubting{fakeView: w.view}, newView(w.api)
		source := tracker.Register(schema.GroupResource{Resource: "pods"}, other)
		trackBy(tracker, w.p, leases, view)
		other.show(110)
		f(w, view, func() {
			_, err := source.ObserveFence(source.BeginFence(), "105")
			require.NoError(t, err)
		})
	})
}

// The fence that ends a doubt may be sent the moment that it began.
func TestADoubtThatNobodyLookedAt(t *testing.T) {
	doubtable(t, Options{SmallCollection: -1}, func(w *world, view *doubting, doubt func()) {
		r := w.p.resource(leases)
		before := w.takeFence()
		require.True(w, r.settled(quiet{base: "105", upTo: "180"}, before))
		w.api.bump(100)
		view.doubt = doubt
		b := r.beginFence()
		view.sync(170)
		_, f := r.endFence(b, "190")
		require.Nil(w, f)
		require.True(w, r.trusts())
		require.Equal(w, "170", r.position("170"), "the proof is of the history that is gone")
	})
}

// A proof is begun, and the cache doubted before it ends.
func TestADoubtDuringAProof(t *testing.T) {
	doubtable(t, Options{}, func(w *world, _ *doubting, doubt func()) {
		r := w.p.resource(leases)
		before := w.takeFence()
		doubt()
		require.False(w, r.settled(quiet{base: "110", upTo: "105", exact: true}, before), "what is past the list may be gone")
		require.False(w, r.settled(quiet{base: "105", upTo: "180"}, before))
		time.Sleep(time.Second)
		b := r.beginFence()
		w.view.sync(110)
		_, f := r.endFence(b, "110")
		require.Nil(w, f)
		require.True(w, r.trusts())
		require.False(w, r.settled(quiet{base: "105", upTo: "180"}, before), "its fence is of the history that is gone")
		require.True(w, r.settled(quiet{base: "105", upTo: "180"}, b.Fence))
	})
}

// The bookmark that ends a proof by watch is past the fence: a restore to between the two was not seen, and the proof
// held for what the new history has there.
func TestRewindToBelowABookmark(t *testing.T) {
	m := &counted{}
	inWorld(t, Options{SmallCollection: -1, Metrics: m}, func(w *world) {
		w.api.bump(50) // 160
		time.AfterFunc(time.Second, func() { w.api.bump(20) })
		w.requireProven(w.prove(time.Now()), methodWatch)
		w.api.restore(170)
		fence := w.takeFence()
		require.Equal(w, 1, m.rewinds)
		w.api.write("ns/a", "uid", false)
		w.requireUnknown(w.prove(fence.TakenAt), ReasonRewind)
	})
}

func TestRewindDuringAProof(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		before := w.takeFence()
		w.api.restore(105)
		after := w.takeFence()
		w.view.sync(105)
		w.p.Known(leases)
		r := w.p.resource(leases)
		require.False(w, r.settled(quiet{base: "105", upTo: "180"}, before), "it is of the history that is gone")
		require.True(w, r.settled(quiet{base: "105", upTo: "105"}, after))
	})
}
