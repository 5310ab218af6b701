// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// fakeFencer answers with rv or err and notes its calls.
type fakeFencer struct {
	rv    string
	err   error
	calls []schema.GroupResource
}

func (f *fakeFencer) Fence(_ context.Context, gr schema.GroupResource) (string, error) {
	f.calls = append(f.calls, gr)
	return f.rv, f.err
}

// safety is one turn of the safety goroutine after d.
func (b *bench) safety(d time.Duration) {
	b.clock.Step(d)
	b.tracker.tick()
	for _, f := range b.tracker.dueFences() {
		b.tracker.fence(context.Background(), f)
	}
	b.pump()
}

// pass has time pass, second by second.
func (b *bench) pass(d time.Duration) {
	for range d / time.Second {
		b.safety(time.Second)
	}
}

func TestRegressionHoldsEveryoneUntilTheStoreIsBack(t *testing.T) {
	b := newBench(t, Options{Fencer: &fakeFencer{rv: "105"}})
	b.pods.apply("100")
	b.c.WroteAt(dsA, "u", pods, "100")
	require.NoError(t, b.c.EnsureReady(dsA), "seen, record gone")

	b.pods.apply("50") // a relist from an apiserver that lags
	e := requireNotReady(t, b.c.EnsureReady(dsA))
	require.Equal(t, whyRegressed, e.Why)
	require.Equal(t, "100", e.awaitedRV)
	require.Equal(t, "50", e.SeenRV)
	requireNotReady(t, b.c.EnsureReady(dsB))
	require.Equal(t, 1, b.metrics.count("regression"))
	require.Equal(t, whyRegressed, b.tracker.infos()[0].Blocked)

	b.safety(0) // the fence that was asked for
	require.Equal(t, 1, b.metrics.count("fence"))
	require.Zero(t, b.metrics.count("rewind"), "the server has the newer data")
	require.Equal(t, 2, b.metrics.count("stale"))
	require.Empty(t, b.takeWoken())
	b.pods.apply("70")
	b.pods.apply("60")
	b.pods.apply("99")
	require.Empty(t, b.takeWoken())
	b.pods.apply("100")
	require.ElementsMatch(t, []types.NamespacedName{dsA, dsB}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Zero(t, b.c.busy.Load())
}

// An apiserver that is cut off from etcd keeps a cache back for as long as it is. Stock goes on at once.
func TestARegressionHoldsForALimitedTime(t *testing.T) {
	for name, tc := range map[string]struct {
		live  string
		limit time.Duration
	}{
		"no fence succeeds":             {"", OwnerLimits.Unknown},
		"a fence has shown it is stale": {"105", OwnerLimits.Stale},
	} {
		t.Run(name, func(t *testing.T) {
			live := restoredFencer{}
			if tc.live != "" {
				live[pods] = tc.live
			}
			b := newBench(t, Options{Fencer: live})
			b.pods.apply("100")
			b.pods.apply("50")
			began := b.clock.Now()
			for b.c.EnsureReady(dsA) != nil && b.clock.Since(began) < time.Hour {
				b.safety(time.Second)
			}
			require.InDelta(t, tc.limit, b.clock.Since(began), float64(2*time.Second))
			require.Contains(t, b.takeWoken(), dsA)
			b.pods.apply("40")
			requireNotReady(t, b.c.EnsureReady(dsA))
		})
	}
}

func TestAWriteSurvivesARegression(t *testing.T) {
	b := newBench(t, Options{Fencer: &fakeFencer{rv: "200"}})
	b.pods.apply("100")
	b.c.WroteAt(dsA, "u", pods, "110")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.pods.apply("50")
	b.safety(0)
	b.c.WroteAt(dsB, "u", pods, "90")
	requireNotReady(t, b.c.EnsureReady(dsB))
	b.pods.apply("100")
	require.Equal(t, []types.NamespacedName{dsB}, b.takeWoken())
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.pods.apply("110")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
}

func TestRewindAfterTheStoreWentBack(t *testing.T) {
	b := newBench(t, Options{Fencer: &fakeFencer{rv: "62"}})
	b.pods.change("100", put(pod1, "p1"))
	b.c.WroteAt(dsA, "u", pods, "110")
	b.c.Deleted(dsA, "u", pods, pod1, "p1")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.c.WroteAt(dsC, "u", pods, "111")
	requireNotReady(t, b.c.EnsureReady(dsC))
	b.pods.apply("60")
	requireNotReady(t, b.c.EnsureReady(dsB))
	b.safety(0)
	require.Equal(t, 1, b.metrics.count("rewind"))
	require.Equal(t, uint64(1), b.source(pods).epoch)
	require.ElementsMatch(t, []types.NamespacedName{dsB, dsC}, b.takeWoken())
	require.Equal(t, 1, b.metrics.waits[outcomeRewound])
	require.NoError(t, b.c.EnsureReady(dsB))
	require.NoError(t, b.c.EnsureReady(dsC))
	require.Equal(t, whyDelete, requireNotReady(t, b.c.EnsureReady(dsA)).Why, "deleted before the restore, or after it?")
	b.pods.apply("62")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken(), "before: it is alive again")
	require.Equal(t, 1, b.metrics.count("dropped"+outcomeUndone))
	require.NoError(t, b.c.EnsureReady(dsA))

	// A write of the new epoch, far below the old RVs, is still a write (gap 5).
	b.c.WroteAt(dsA, "u", pods, "65")
	require.Equal(t, "65", requireNotReady(t, b.c.EnsureReady(dsA)).awaitedRV)
	b.pods.apply("65")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
}

func TestRewindBeforeTheStoreNotices(t *testing.T) {
	b := newBench(t, Options{})
	s := b.source(pods)
	b.pods.apply("100")
	tok := s.BeginFence()
	require.Equal(t, findingRewind, s.observeFence(tok, "62"))
	require.Equal(t, findingOutdated, s.observeFence(tok, "61"), "an answer of the epoch before says nothing")
	require.Equal(t, 1, b.metrics.count("rewind"))

	e := requireNotReady(t, b.c.EnsureReady(dsA))
	require.Equal(t, whyRelist, e.Why)
	require.False(t, s.Reached("50"), "the store shows another history")
	b.c.WroteAt(dsB, "u", pods, "64")
	require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsB)).Why)

	require.Equal(t, findingConsistent, s.observeFence(s.BeginFence(), "70"), "one rewind is one epoch")
	b.pods.apply("100") // a bookmark of the old stream changes nothing
	require.Empty(t, b.takeWoken())
	b.pods.apply("63")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.Zero(t, b.metrics.count("fence"))
	require.Equal(t, "64", requireNotReady(t, b.c.EnsureReady(dsB)).awaitedRV)
	b.pods.apply("64")
	require.Equal(t, []types.NamespacedName{dsB}, b.takeWoken())
}

func TestAWriteMadeAfterTheFenceBeganIsKept(t *testing.T) {
	b := newBench(t, Options{})
	s := b.source(pods)
	b.pods.apply("100")
	b.c.WroteAt(dsA, "u", pods, "110")
	b.pods.apply("60")
	tok := s.BeginFence()
	b.c.WroteAt(dsB, "u", pods, "63") // new epoch, after the read was sent
	require.Equal(t, findingRewind, s.observeFence(tok, "62"))
	require.NoError(t, b.c.EnsureReady(dsA))
	requireNotReady(t, b.c.EnsureReady(dsB))
	b.pods.apply("63")
	require.NoError(t, b.c.EnsureReady(dsB))
}

func TestALowerWriteOutlivesTheRecordItHidIn(t *testing.T) {
	b := newBench(t, Options{})
	s := b.source(pods)
	b.pods.apply("40")
	b.c.WroteAt(dsA, "u", pods, "110")
	b.c.WroteAt(dsA, "u", pods, "61") // new epoch: 61 is not in the store yet
	requireNotReady(t, b.c.EnsureReady(dsA))
	require.Equal(t, findingRewind, s.observeFence(s.BeginFence(), "62"))
	require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why, "40 may be of the history that is gone")
	b.pods.relist("61", nil)
	require.Equal(t, "62", requireNotReady(t, b.c.EnsureReady(dsA)).awaitedRV)
	b.pods.apply("62")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
}

// Etcd is restored to between two writes of an owner, of which the cache has seen neither: the first is still awaited.
func TestARewindBetweenTwoWritesKeepsTheFirst(t *testing.T) {
	b := newBench(t, Options{})
	b.pods.apply("100")
	b.c.WroteAt(dsA, "u", pods, "105")
	b.c.WroteAt(dsA, "u", pods, "110")
	requireNotReady(t, b.c.EnsureReady(dsA))
	s := b.source(pods)
	require.Equal(t, findingRewind, s.observeFence(s.BeginFence(), "105"))
	b.pods.relist("100", nil)
	require.Equal(t, "105", requireNotReady(t, b.c.EnsureReady(dsA)).awaitedRV)
	require.Empty(t, b.takeWoken())
	b.pods.apply("105")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
}

func TestFencesThatProveNothing(t *testing.T) {
	b := newBench(t, Options{})
	s := b.source(pods)
	b.pods.apply("100")
	old := s.BeginFence()
	b.c.WroteAt(dsA, "u", pods, "110")
	b.pods.apply("105")
	require.Equal(t, findingConsistent, s.observeFence(old, "100"), "the store moved on, the write came after it was sent")
	require.Equal(t, findingOutdated, b.source(sets).observeFence(old, "1"), "another source's token")
	requireNotReady(t, b.c.EnsureReady(dsA))
}

func TestASuspectWriteWaitsForAFence(t *testing.T) {
	for _, tc := range []struct {
		name, live string
		rewind     bool
	}{{"server rewound", "62", true}, {"late response", "300", false}} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fakeFencer{rv: tc.live}
			b := newBench(t, Options{Fencer: f})
			b.pods.apply("100")
			sent := b.c.Sending(pods)
			b.pods.apply("105")
			for range 60 {
				b.safety(time.Second)
			}
			require.False(t, sent.Suspect("103"))
			b.c.Wrote(dsB, "u", pods, "103", sent)
			require.NoError(t, b.c.EnsureReady(dsB), "however late the answer: the store did not have it before the request")
			b.c.WroteAt(dsB, "u", pods, "61")
			require.NoError(t, b.c.EnsureReady(dsB), "nothing is known of when it was sent")
			require.Empty(t, f.calls)

			require.True(t, sent.Suspect("61"))
			require.True(t, sent.Suspect("100"))
			b.c.Wrote(dsA, "u", pods, "61", sent)
			require.Equal(t, whySuspect, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
			b.safety(0)
			require.Equal(t, []schema.GroupResource{pods}, f.calls)
			if !tc.rewind {
				require.Equal(t, []types.NamespacedName{dsA}, b.takeWokenNow())
				require.NoError(t, b.c.EnsureReady(dsA))
				return
			}
			require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
			b.pods.apply("60")
			require.Empty(t, b.takeWoken(), "61 is not in the store")
			b.pods.apply("61")
			require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
		})
	}
}

// A server that was restored to below what the store shows, and has grown past that since, is not one that the store follows.
func TestAStoreBelowTheFenceIsNotTrusted(t *testing.T) {
	b := newBench(t, Options{})
	s := b.source(pods)
	b.pods.apply("100")
	require.Equal(t, findingConsistent, s.observeFence(s.BeginFence(), "160"))
	_, trusted := s.Epoch()
	require.True(t, trusted)
	require.Equal(t, findingRewind, s.observeFence(s.BeginFence(), "120"))
	epoch, trusted := s.Epoch()
	require.Equal(t, uint64(1), epoch)
	require.False(t, trusted)
	b.pods.apply("121")
	require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.pods.relist("122", nil)
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	_, trusted = s.Epoch()
	require.True(t, trusted)
}

// A store that went back before the rewind, as it was relisted from an apiserver that lagged, has not followed the server.
func TestAStoreThatWentBackBeforeIsNotTrusted(t *testing.T) {
	for name, doubted := range map[string]bool{"a fence has shown that it lags": false, "another resource shows the rewind": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{OnRewind: func() {}})
			s := b.source(sets)
			b.sets.apply("160")
			b.sets.relist("100", nil)
			if doubted {
				b.pods.apply("160")
				_, err := b.source(pods).ObserveFence(b.source(pods).BeginFence(), "90")
				require.NoError(t, err)
			} else {
				require.Equal(t, findingConsistent, s.observeFence(s.BeginFence(), "160"))
			}
			require.Equal(t, findingRewind, s.observeFence(s.BeginFence(), "120"))
			_, trusted := s.Epoch()
			require.False(t, trusted)
			b.sets.relist("99", nil)
			_, trusted = s.Epoch()
			require.True(t, trusted)
		})
	}
}

// The store has it, and tells of it in a moment.
func TestAFenceKnowsWhatTheStoreHas(t *testing.T) {
	b := newBench(t, Options{})
	s := b.source(pods)
	b.pods.apply("100")
	b.pods.set("110", nil)
	tok := s.BeginFence()
	require.Equal(t, findingRewind, s.observeFence(tok, "105"))
	b.pods.set("111", nil)
	require.Equal(t, findingConsistent, s.observeFence(s.BeginFence(), "106"), "it is of the history that is gone")
}

func TestTheAnswerToAWriteIsAFence(t *testing.T) {
	f := &fakeFencer{rv: "62"}
	b := newBench(t, Options{Fencer: f})
	s := b.source(pods)
	b.pods.apply("100")
	early := b.c.Sending(pods)
	epoch, ok := s.ObserveWrite(b.c.Sending(pods), "110")
	require.True(t, ok)
	require.Zero(t, epoch)
	_, ok = s.ObserveWrite(early, "105")
	require.True(t, ok, "it was sent before the other was answered")
	for name, tc := range map[string]struct {
		sent Sent
		rv   string
	}{
		"of another resource":    {b.c.Sending(sets), "120"},
		"of none":                {b.c.Sending(widgets), "120"},
		"cannot be compared":     {early, "opaque"},
		"known when it was sent": {b.c.Sending(pods), "110"},
	} {
		_, ok = s.ObserveWrite(tc.sent, tc.rv)
		require.False(t, ok, name)
	}
	b.safety(time.Second)
	require.Equal(t, []schema.GroupResource{pods}, f.calls, "the last is a sign of a rewind")
	require.Equal(t, 1, b.metrics.count("rewind"))
	_, ok = s.ObserveWrite(early, "120")
	require.False(t, ok, "it was sent in another epoch")
}

func TestTheServerWasSeen(t *testing.T) {
	b := newBench(t, Options{})
	s := b.source(pods)
	b.pods.apply("100")
	require.True(t, s.ServerAt(0, "180"))
	require.Equal(t, findingRewind, s.observeFence(s.BeginFence(), "170"))
	require.False(t, s.ServerAt(0, "190"))
	require.False(t, s.ServerAt(1, "opaque"))
}

func (b *bench) takeWokenNow() []types.NamespacedName {
	w := b.woken
	b.woken = nil
	return w
}

//conformance:kep-5647 Risks and Mitigations: nothing waits without limit
func TestSafetyTimer(t *testing.T) {
	f := &fakeFencer{rv: "20"}
	b := newBench(t, Options{Fencer: f})
	b.pods.apply("5")
	b.c.WroteAt(dsA, "u", pods, "10")
	b.safety(20 * time.Second)
	require.Empty(t, f.calls, "nobody is parked")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.safety(9 * time.Second)
	require.Empty(t, f.calls)
	b.safety(time.Second)
	require.Len(t, f.calls, 1)
	require.Equal(t, 1, b.metrics.count("stale"))
	require.True(t, b.tracker.waiting()[0].ProvenStale)
	b.safety(29 * time.Second)
	require.Len(t, f.calls, 1)
	b.safety(time.Second)
	require.Len(t, f.calls, 2)
	require.Equal(t, 1, b.metrics.count("stale"), "once for each wait")

	b.safety(19 * time.Second)
	require.Empty(t, b.stale)
	b.safety(time.Second)
	require.Len(t, b.stale, 1)
	require.Equal(t, time.Minute, b.clock.Since(b.stale[0].Since))
	b.safety(20 * time.Second)
	require.Len(t, b.stale, 1, "reported once")
	require.True(t, b.stale[0].ProvenStale)
	require.Equal(t, types.UID("u"), b.stale[0].OwnerUID)
	require.Empty(t, b.takeWoken(), "truly stale: stays parked")

	f.rv = "9" // lost write: etcd restored
	b.safety(30 * time.Second)
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWokenNow())
	require.Equal(t, 1, b.metrics.count("rewind"))
	require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.pods.relist("9", nil)
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.safety(time.Second) // The list is past what the store was at.
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWokenNow())
	require.NoError(t, b.c.EnsureReady(dsA))
}

func TestAMissedWakeIsMadeUpFor(t *testing.T) {
	b := newBench(t, Options{Fencer: &fakeFencer{rv: "20"}})
	b.c.WroteAt(dsA, "u", pods, "10")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.source(pods).cur.Store(10) // as if the event's signal had been lost
	b.safety(10 * time.Second)
	b.c.WroteAt(dsB, "u", pods, "11")
	require.Equal(t, []types.NamespacedName{dsA}, append(b.woken, b.takeWoken()...)[:1])
}

func TestWhenNothingCanBeProven(t *testing.T) {
	for _, tc := range []struct {
		name    string
		fencer  Fencer
		abandon bool
	}{
		{"no fencer", nil, true},
		{"forbidden", &fakeFencer{err: ErrUnprovable}, true},
		{"opaque", &fakeFencer{rv: "opaque"}, true},
		{"server away", &fakeFencer{err: errors.New("connection refused")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, Options{Fencer: tc.fencer})
			b.pods.apply("5")
			b.sets.apply("50")
			b.sets.apply("40")
			b.c.WroteAt(dsA, "u", pods, "10")
			requireNotReady(t, b.c.EnsureReady(dsA))
			for range 9 {
				b.safety(30 * time.Second)
			}
			require.Empty(t, b.woken)
			require.False(t, b.stale[0].ProvenStale)
			b.safety(31 * time.Second)
			b.safety(31 * time.Second)
			if !tc.abandon {
				require.Empty(t, b.woken, "its own write is awaited, but not that sets are back")
				require.Empty(t, b.tracker.infos()[1].Blocked)
				return
			}
			require.Equal(t, []types.NamespacedName{dsA}, b.woken)
			require.NoError(t, b.c.EnsureReady(dsA))
			require.Equal(t, 1, b.metrics.waits[outcomeAbandoned])
			require.Positive(t, b.metrics.count("droppedAbandoned"))
		})
	}
}

func TestADeleteWithoutEffectDoesNotHoldWithoutEnd(t *testing.T) {
	f := &fakeFencer{rv: "20"}
	b := newBench(t, Options{Fencer: f})
	b.pods.change("5", put(pod1, "p1"))
	b.c.Deleted(dsA, "u", pods, pod1, "p1")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.safety(10 * time.Second)
	b.safety(30 * time.Second)
	require.Empty(t, b.woken, "the store has not passed the fence")
	b.pods.apply("20")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.Equal(t, 1, b.metrics.count("dropped"+outcomeUndone))
}

func TestWait(t *testing.T) {
	b := newBench(t, Options{})
	s := b.source(pods)
	b.pods.apply("5")
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, s.Wait(ctx, "5"))
	require.ErrorIs(t, s.Wait(ctx, "x"), ErrUnprovable)
	require.True(t, s.Reached("5"))

	wait := func(w func(context.Context, string) error, l *line, rv string) chan error {
		done := make(chan error, 1)
		n := b.waiters(l)
		go func() { done <- w(ctx, rv) }()
		for b.waiters(l) == n { //nolint:revive // the waiter is about to enter
		}
		return done
	}
	stored := wait(s.Wait, &s.line, "10")
	b.pods.apply("10")
	b.pump()
	require.NoError(t, <-stored)

	rewound := wait(s.Wait, &s.line, "110")
	require.Equal(t, findingRewind, s.observeFence(s.BeginFence(), "4"))
	b.pump()
	require.ErrorIs(t, <-rewound, errRewound)
	b.pods.apply("4")

	cancelled := wait(s.Wait, &s.line, "20")
	cancel()
	require.ErrorIs(t, <-cancelled, context.Canceled)
	require.Zero(t, b.waiters(&s.line))

	ctx = context.Background()
	stopped := wait(s.Wait, &s.line, "20")
	b.tracker.stop()
	require.ErrorIs(t, <-stopped, errNotRunning)
	require.ErrorIs(t, s.Wait(ctx, "20"), errNotRunning)
}

func (b *bench) waiters(l *line) int {
	b.tracker.mu.Lock()
	defer b.tracker.mu.Unlock()
	return len(l.heap)
}
