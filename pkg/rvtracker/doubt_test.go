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

// restoredFencer answers for each resource with what the server has.
type restoredFencer map[schema.GroupResource]string

func (f restoredFencer) Fence(_ context.Context, gr schema.GroupResource) (string, error) {
	if f[gr] == "" {
		return "", errors.New("down")
	}
	return f[gr], nil
}

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// rewound is a bench on which dsA waited for a write of pods that a restore has undone, and sets were at setsRV.
func rewound(t *testing.T, live restoredFencer, setsRV string) (b *bench, relists *int) {
	relists = new(int)
	b = newBench(t, Options{Fencer: live, OnRewind: func() { *relists++ }})
	b.pods.apply("100")
	b.sets.apply(setsRV)
	b.c.WroteAt(dsA, "u", pods, "110")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.safety(10 * time.Second)
	require.Equal(t, 1, b.metrics.count("rewind"))
	require.Equal(t, 1, *relists, "every cache is to be relisted")
	return b, relists
}

func TestARewindOfOneResourceIsOneOfAll(t *testing.T) {
	live := restoredFencer{pods: "62", sets: "62"}
	b, relists := rewound(t, live, "99")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken(), "its write is lost")
	requireNotReady(t, b.c.EnsureReady(dsA))
	require.Equal(t, whyDoubt, b.tracker.infos()[1].Blocked, "sets: nothing has shown yet how they stand")

	b.safety(time.Second)
	require.Equal(t, 2, b.metrics.count("rewind"))
	require.Equal(t, 1, *relists, "that was the same rewind")
	require.Equal(t, whyRelist, b.tracker.infos()[1].Blocked)
	b.pods.apply("63")
	require.Empty(t, b.takeWoken())
	b.sets.apply("63")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))

	// The next rewind is one again.
	b.c.WroteAt(dsA, "u", sets, "70")
	requireNotReady(t, b.c.EnsureReady(dsA))
	live[pods], live[sets] = "40", "40"
	b.safety(30 * time.Second)
	require.Equal(t, 1, *relists, "sets may be in an etcd of their own")
	b.safety(time.Second)
	require.Equal(t, 2, *relists)
}

func TestADoubtedStoreRelistsBeforeItIsTrusted(t *testing.T) {
	b, relists := rewound(t, restoredFencer{pods: "62", sets: "62"}, "50")
	b.pods.apply("63")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.safety(time.Second)
	e := requireNotReady(t, b.c.EnsureReady(dsA))
	require.Equal(t, whyDoubt, e.Why, "a fence above 50 does not tell which history the store shows")
	require.ErrorContains(t, e, "went backward")
	b.sets.relist("62", nil)
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Equal(t, 1, *relists)
	require.Zero(t, b.c.busy.Load())
}

func TestAMoveAloneDoesNotEndADoubt(t *testing.T) {
	live := restoredFencer{pods: "62"}
	b, _ := rewound(t, live, "99")
	b.pods.apply("63")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.takeWoken()
	b.safety(time.Second) // no answer for sets
	b.sets.apply("101")   // an event of the stream before
	require.Empty(t, b.takeWoken())
	require.Equal(t, whyDoubt, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	live[sets] = "62"
	b.safety(5 * time.Second)
	require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
}

func TestAFenceFromBeforeTheDoubtDoesNotEndIt(t *testing.T) {
	b := newBench(t, Options{OnRewind: func() {}})
	b.pods.apply("100")
	b.sets.apply("50")
	early := b.source(sets).BeginFence()
	require.Equal(t, findingRewind, b.source(pods).observeFence(b.source(pods).BeginFence(), "62"))
	b.sets.apply("51")
	require.Equal(t, findingConsistent, b.source(sets).observeFence(early, "90"))
	require.Equal(t, whyDoubt, b.tracker.infos()[1].Blocked)
	require.False(t, b.source(sets).Reached("51"))
	b.sets.relist("51", nil)
	require.False(t, b.source(sets).Reached("51"))
	b.source(sets).ObserveFence(b.source(sets).BeginFence(), "91")
	require.True(t, b.source(sets).Reached("51"))
}

// A quiet resource in an etcd of its own is relisted at the resource version that its store had.
func TestADoubtEndsThoughTheStoreStandsStill(t *testing.T) {
	b, _ := rewound(t, restoredFencer{pods: "62", sets: "500"}, "500")
	b.pods.apply("63")
	b.takeWoken()
	b.safety(time.Second)
	require.Equal(t, whyDoubt, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.safety(time.Minute)
	require.Empty(t, b.takeWoken(), "time proves nothing")
	b.sets.relist("500", nil)
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
}

// The server is there, but one of its objects cannot be listed.
func TestAHoldIsBoundedThoughNoListComes(t *testing.T) {
	b, relists := rewound(t, restoredFencer{pods: "62", sets: "62"}, "99")
	b.safety(time.Second)
	for range 9 {
		b.safety(30 * time.Second)
		requireNotReady(t, b.c.EnsureReady(dsA))
	}
	for range 3 {
		b.safety(30 * time.Second)
	}
	for range 20 {
		require.NoError(t, b.c.EnsureReady(dsA))
		b.c.WroteAt(dsA, "u", pods, "62")
		b.source(pods).ObserveFence(b.source(pods).BeginFence(), "62")
		b.safety(30 * time.Second)
	}
	require.Equal(t, 1, *relists, "it is still the same rewind")
	b.pods.relist("63", nil)
	b.sets.relist("63", nil)
	b.c.WroteAt(dsA, "u", pods, "64")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.pods.apply("64")
	b.pump()
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Zero(t, b.c.busy.Load())
}

// A store that does not tell of lists is trusted once it has moved, or after a while.
func TestADoubtOfAPlainStore(t *testing.T) {
	for _, moves := range []bool{true, false} {
		b := newBench(t, Options{Fencer: restoredFencer{pods: "62", sets: "500"}, OnRewind: func() {}})
		plain := &plainStore{rv: "500"}
		c := b.tracker.ForController("plain", map[schema.GroupResource]Store{sets: plain}, func(types.NamespacedName) {})
		b.pods.apply("100")
		require.Equal(t, findingRewind, b.source(pods).observeFence(b.source(pods).BeginFence(), "62"))
		b.safety(time.Second)
		require.Equal(t, whyDoubt, requireNotReady(t, c.EnsureReady(dsA)).Why)
		if moves {
			plain.set("501", nil)
		} else {
			b.safety(30 * time.Second)
		}
		require.NoError(t, c.EnsureReady(dsA))
	}
}

// Events that were queued before a restore come as if nothing had happened.
func TestAnEventFromBeforeTheRestoreEndsNoHold(t *testing.T) {
	live := restoredFencer{pods: "62", sets: "62"}
	b, _ := rewound(t, live, "50")
	b.safety(time.Second) // A fence of sets, too: it proves no rewind.
	b.takeWoken()
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.pods.apply("101")
	require.Empty(t, b.takeWoken())
	require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.pods.relist("63", nil)
	b.takeWoken()
	b.sets.apply("51")
	require.Empty(t, b.takeWoken())
	require.Equal(t, whyDoubt, requireNotReady(t, b.c.EnsureReady(dsA)).Why, "50 may lie before the restore, and 51 does")
	b.sets.relist("62", nil)
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWoken())
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Zero(t, b.c.busy.Load())
}

// The new epoch may have grown past what the store held, or the list was queued before the restore: a fence tells.
func TestAListAheadOfAHoldIsLookedAt(t *testing.T) {
	for name, live := range map[string]string{"of the new epoch": "120", "of the old one": "70"} {
		t.Run(name, func(t *testing.T) {
			fencer := restoredFencer{pods: "62", sets: "62"}
			b, relists := rewound(t, fencer, "50")
			b.safety(time.Second)
			b.sets.relist("62", nil)
			b.takeWoken()
			fencer[pods] = live
			b.pods.relist("105", nil)
			require.Equal(t, whyDoubt, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
			b.safety(5 * time.Second)
			if live == "120" {
				require.Equal(t, []types.NamespacedName{dsA}, b.takeWokenNow())
				require.NoError(t, b.c.EnsureReady(dsA))
				require.Equal(t, 1, *relists)
				return
			}
			b.safety(time.Second)
			require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
			require.Equal(t, 2, *relists)
		})
	}
}

// The fence that shows the rewind was sent before the list: the list is past it. Nobody asks for another list, so a fence has to do.
func TestAListThatOutrunsTheFenceIsLookedAt(t *testing.T) {
	for name, live := range map[string]string{"of the new epoch": "64", "of the old one": "61"} {
		t.Run(name, func(t *testing.T) {
			fencer := restoredFencer{pods: "62", sets: live}
			b, relists := rewound(t, fencer, "99")
			s := b.source(sets)
			tok := s.BeginFence()
			b.sets.relist("63", nil)
			require.Equal(t, findingRewind, s.observeFence(tok, "62"))
			b.pods.apply("63")
			_, trusted := s.Epoch()
			require.False(t, trusted, "the list may have been sent before the rewind")
			b.safety(time.Second)
			_, trusted = s.Epoch()
			require.Equal(t, live == "64", trusted)
			require.Equal(t, live == "64", b.c.EnsureReady(dsA) == nil)
			if live == "61" {
				b.safety(5 * time.Second)
				require.Equal(t, 2, *relists, "a rewind again")
			}
		})
	}
}

// Owners of every controller wait for it, and doubts are spaced as relists are.
func TestTheFenceOfADoubtIsSentAtOnce(t *testing.T) {
	live := restoredFencer{pods: "62"}
	b := newBench(t, Options{Fencer: live, OnRewind: func() {}})
	b.pods.apply("100")
	b.sets.apply("99")
	b.source(sets).askFence()
	b.safety(time.Second) // It fails.
	require.Equal(t, findingRewind, b.source(pods).observeFence(b.source(pods).BeginFence(), "62"))
	live[sets] = "100"
	b.safety(0)
	b.sets.relist("99", nil)
	_, trusted := b.source(sets).Epoch()
	require.True(t, trusted)
}

// A fence that another one overtakes which shows a rewind has not failed as one that the server does not answer.
func TestAFenceThatARewindOvertakesIsSentAgainSoon(t *testing.T) {
	f := &liveFencer{}
	b := newBench(t, Options{Fencer: f})
	s := b.source(pods)
	b.pods.apply("100")
	f.f = func(context.Context) (string, error) {
		s.ObserveFence(s.BeginFence(), "62")
		return "", errors.New("resource versions went backward")
	}
	s.askFence()
	b.safety(time.Second)
	f.f = func(context.Context) (string, error) { return "63", nil }
	calls := f.calls.Load()
	b.safety(time.Second)
	require.Equal(t, calls+1, f.calls.Load())
}

// Whatever MaxWait lets owners do: what a cache shows that was not listed since a rewind proves nothing.
func TestADoubtedStoreThatIsUsedIsNotTrusted(t *testing.T) {
	live := restoredFencer{pods: "62", sets: "99"}
	b, relists := rewound(t, live, "99")
	live[pods] = "63"
	b.pods.apply("63")
	for range 12 {
		b.safety(30 * time.Second)
	}
	require.NoError(t, b.c.EnsureReady(dsA))
	s := b.source(sets)
	_, trusted := s.Epoch()
	require.False(t, trusted)
	require.True(t, s.Reached("99"))
	b.c.WroteAt(dsA, "u", sets, "100")
	require.Equal(t, whyWrite, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.sets.apply("100")
	require.Equal(t, []types.NamespacedName{dsA}, b.takeWokenNow(), "it is used all the same")
	b.c.WroteAt(dsA, "u", sets, "101")
	requireNotReady(t, b.c.EnsureReady(dsA))

	// What goes back now is not what the doubt was about.
	live[sets] = "70"
	b.safety(30 * time.Second)
	b.safety(time.Second)
	require.Equal(t, 2, b.metrics.count("rewind"))
	require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.sets.relist("71", nil)
	_, trusted = s.Epoch()
	require.True(t, trusted)
	require.Equal(t, 1, *relists)
}

// A request to relist may come to nothing, or not be made as it is too soon after another.
func TestAListIsAskedForAgain(t *testing.T) {
	asked := map[schema.GroupResource]int{}
	b := newBench(t, Options{Fencer: restoredFencer{pods: "62", sets: "99"}, OnRewind: func() {},
		OnRewindOf: func(r schema.GroupResource, _ time.Time) { asked[r]++ }})
	b.pods.apply("100")
	b.sets.apply("99")
	b.source(pods).ObserveFence(b.source(pods).BeginFence(), "62")
	for range 3600 { // An hour
		b.safety(time.Second)
	}
	for _, r := range []schema.GroupResource{pods, sets} {
		require.GreaterOrEqual(t, asked[r], 12, r)
		require.LessOrEqual(t, asked[r], 20, r)
	}
	b.pods.relist("63", nil)
	b.sets.relist("99", nil)
	clear(asked)
	for range 3600 {
		b.safety(time.Second)
	}
	require.Empty(t, asked)
}

// Whatever the server answers to fences of one resource: owners wait for a limited time. What the cache shows proves nothing after that, either.
func TestADoubtThatNothingCanSettleIsGivenUp(t *testing.T) {
	nothing := func(*bench, restoredFencer) {}
	once := func(rv string) func(*bench, restoredFencer) {
		return func(b *bench, live restoredFencer) {
			live[sets] = rv
			b.safety(time.Second)
			delete(live, sets)
		}
	}
	for name, tc := range map[string]struct {
		happens func(*bench, restoredFencer)
		limit   time.Duration
	}{
		"no fence succeeds":              {nothing, OwnerLimits.Unknown},
		"no fence succeeds, but a list":  {func(b *bench, _ restoredFencer) { b.sets.relist("61", nil) }, OwnerLimits.Unknown},
		"one fence has shown no rewind":  {once("99"), OwnerLimits.Stale},
		"one fence has shown the rewind": {once("62"), OwnerLimits.Stale},
	} {
		t.Run(name, func(t *testing.T) {
			live := restoredFencer{pods: "63"} // Those of sets fail for ever.
			b := newBench(t, Options{Fencer: live, OnRewind: func() {}})
			b.pods.apply("100")
			b.sets.apply("99")
			b.source(pods).ObserveFence(b.source(pods).BeginFence(), "62")
			b.pods.relist("63", nil)
			began := b.clock.Now()
			tc.happens(b, live)
			for b.c.EnsureReady(dsA) != nil && b.clock.Since(began) < time.Hour {
				b.safety(time.Second)
			}
			require.InDelta(t, tc.limit, b.clock.Since(began), float64(2*time.Second))
			require.Contains(t, b.takeWoken(), dsA)
			_, trusted := b.source(sets).Epoch()
			require.False(t, trusted, "deletions need a proof all the same")
		})
	}
}

// Nobody waits for the store any more, as it is used. What it goes back to and what fences show then counts all the same.
func TestADoubtedStoreThatIsUsedIsTrustedAgain(t *testing.T) {
	live := restoredFencer{pods: "63"}
	b := newBench(t, Options{Fencer: live, OnRewind: func() {}})
	b.pods.apply("100")
	b.sets.apply("99")
	b.source(pods).ObserveFence(b.source(pods).BeginFence(), "62")
	b.pods.relist("63", nil)
	b.pass(OwnerLimits.Unknown)
	require.NoError(t, b.c.EnsureReady(dsA))

	b.sets.relist("61", nil) // The list that was asked for.
	require.Equal(t, whyRegressed, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.pass(OwnerLimits.Unknown)
	require.NoError(t, b.c.EnsureReady(dsA))
	_, trusted := b.source(sets).Epoch()
	require.False(t, trusted)

	b.pass(time.Minute)
	live[sets] = "63"
	b.pass(recheck)
	_, trusted = b.source(sets).Epoch()
	require.True(t, trusted)
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Zero(t, b.c.busy.Load())
}

// Nothing can ever be compared.
func TestADoubtIsGivenUpThoughNothingCanBeProven(t *testing.T) {
	b := newBench(t, Options{Fencer: &fakeFencer{err: ErrUnprovable}, OnRewind: func() {}})
	b.pods.apply("100")
	b.sets.apply("99")
	b.source(pods).ObserveFence(b.source(pods).BeginFence(), "62")
	b.pods.apply("63")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.safety(59 * time.Second)
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.safety(time.Second)
	require.NoError(t, b.c.EnsureReady(dsA))
}

// A write that a restore has undone never comes, and no fence says so.
func TestAWriteThatMayBeLostIsNotWaitedForWithoutEnd(t *testing.T) {
	live := restoredFencer{pods: "63"}
	b := newBench(t, Options{Fencer: live, OnRewind: func() {}})
	b.pods.apply("100")
	b.sets.apply("99")
	b.c.WroteAt(dsA, "u", sets, "110")
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.source(pods).ObserveFence(b.source(pods).BeginFence(), "62")
	b.pods.relist("63", nil)
	b.pass(2 * OwnerLimits.Unknown)
	require.NoError(t, b.c.EnsureReady(dsB))
	require.Equal(t, whyWrite, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	b.pass(maxWait - 2*OwnerLimits.Unknown)
	require.NoError(t, b.c.EnsureReady(dsA))
	require.Equal(t, 1, b.metrics.count("dropped"+outcomeAbandoned))
}

// Once the list has come it is not asked for again, though no fence says yet whether it is of the new epoch.
func TestAListThatHasComeIsNotAskedForAgain(t *testing.T) {
	asked := map[schema.GroupResource]time.Time{}
	b := newBench(t, Options{Fencer: restoredFencer{pods: "63"}, OnRewind: func() {},
		OnRewindOf: func(r schema.GroupResource, since time.Time) { asked[r] = since }})
	b.pods.apply("100")
	b.sets.apply("99")
	b.source(pods).ObserveFence(b.source(pods).BeginFence(), "62")
	began := b.clock.Now()
	b.pass(31 * time.Second)
	require.Equal(t, map[schema.GroupResource]time.Time{pods: began, sets: began}, asked, "lists that began since then will do")
	b.pods.relist("63", nil)
	b.sets.relist("63", nil)
	clear(asked)
	b.pass(time.Hour)
	require.Empty(t, asked)
}

// The list that its doubt has asked for is of the new epoch, too, when a fence shows that the resource went back with the others.
func TestAListSinceTheDoubtIsSpared(t *testing.T) {
	asked := map[schema.GroupResource]time.Time{}
	live := restoredFencer{pods: "62"}
	b := newBench(t, Options{Fencer: live, OnRewind: func() {},
		OnRewindOf: func(r schema.GroupResource, since time.Time) { asked[r] = since }})
	b.pods.apply("100")
	b.sets.apply("99")
	b.source(pods).ObserveFence(b.source(pods).BeginFence(), "62")
	b.pods.relist("62", nil)
	began := b.clock.Now()
	b.pass(10 * time.Second)
	live[sets] = "62"
	b.pass(time.Minute)
	require.Equal(t, whyRelist, requireNotReady(t, b.c.EnsureReady(dsA)).Why)
	require.Equal(t, map[schema.GroupResource]time.Time{sets: began}, asked)

	// Not so when it goes back once more.
	again := b.clock.Now()
	b.source(sets).ObserveFence(b.source(sets).BeginFence(), "50")
	b.pass(10 * time.Minute)
	require.False(t, asked[sets].Before(again))
}

// An aggregated API of two replicas, each with resource versions of its own.
func TestAHistoryOfItsOwnConcernsNobodyElse(t *testing.T) {
	for name, resource := range map[string]schema.GroupResource{
		"aggregated": widgets,
		"events":     {Resource: "events"},
	} {
		t.Run(name, func(t *testing.T) {
			relists, alone := 0, map[schema.GroupResource]int{}
			live := restoredFencer{pods: "2000", sets: "2000"}
			b := newBench(t, Options{Fencer: live, OnRewind: func() { relists++ }, OnRewindOf: func(r schema.GroupResource, _ time.Time) { alone[r]++ },
				SameStore: func(r schema.GroupResource) bool { return r != widgets }}) // Events are built in.
			b.pods.apply("1900")
			b.sets.apply("1900")
			store := &hookedStore{}
			s := b.tracker.Register(resource, store)
			for i := range 120 { // 10 min of the monitor
				store.relist([]string{"1000", "500"}[i%2], nil)
				s.ObserveFence(s.BeginFence(), []string{"1000", "500"}[(i+1)%2])
				b.safety(5 * time.Second)
				require.NoError(t, b.c.EnsureReady(dsA))
			}
			require.Greater(t, b.metrics.count("rewind"), 50)
			require.Zero(t, relists)
			require.Len(t, alone, 1)
			require.LessOrEqual(t, alone[resource], 8, "%v: more and more seldom", alone)
			require.LessOrEqual(t, b.metrics.count("fence"), 2*60+8, "two core resources in 10 s")
		})
	}
}

func TestARewindIsConfirmedByACoreResource(t *testing.T) {
	for name, tc := range map[string]struct {
		had     string // what pods had shown
		relists int
	}{
		"pods went back, too":               {"99", 1},
		"pods have nothing to go back from": {"50", 0},
	} {
		t.Run(name, func(t *testing.T) {
			relists := 0
			b := newBench(t, Options{Fencer: restoredFencer{pods: "62", sets: "62"}, OnRewind: func() { relists++ }})
			b.pods.apply(tc.had)
			b.sets.apply("50")
			store := &hookedStore{}
			s := b.tracker.Register(widgets, store)
			store.relist("100", nil)
			require.Equal(t, findingRewind, s.observeFence(s.BeginFence(), "62"))
			b.pump()
			require.Zero(t, relists)
			b.safety(0)
			require.Equal(t, tc.relists, relists)
			require.Equal(t, tc.relists == 0, b.c.EnsureReady(dsA) == nil)
		})
	}
}

func TestRelistsOfAllAreSpaced(t *testing.T) {
	relists := 0
	b := newBench(t, Options{OnRewind: func() { relists++ }})
	s := b.source(pods)
	for i := range 600 { // An hour
		b.pods.relist([]string{"1000", "500"}[i%2], nil)
		s.ObserveFence(s.BeginFence(), []string{"1000", "500"}[(i+1)%2])
		b.safety(6 * time.Second)
		if i == 0 {
			require.Equal(t, 1, relists, "the first at once")
		}
	}
	require.LessOrEqual(t, relists, 20)
	require.GreaterOrEqual(t, relists, 12)
	b.clock.Step(time.Hour)
	before := relists
	b.pods.relist("1000", nil)
	s.ObserveFence(s.BeginFence(), "400")
	b.pump()
	require.Equal(t, before+1, relists)
}

// Who waited for a write of sets is free when these are shown to have gone back, and must not act on pods of before.
func TestABuiltInResourceSpreadsItsRewindAtOnce(t *testing.T) {
	relists := 0
	b := newBench(t, Options{Fencer: restoredFencer{sets: "62"}, OnRewind: func() { relists++ },
		SameStore: func(r schema.GroupResource) bool { return r == sets }})
	b.pods.apply("99")
	b.sets.apply("99")
	b.c.WroteAt(dsA, "u", sets, "101")
	requireNotReady(t, b.c.EnsureReady(dsA))
	s := b.source(sets)
	require.Equal(t, findingRewind, s.observeFence(s.BeginFence(), "62"))
	require.Equal(t, whyDoubt, b.tracker.infos()[0].Blocked)
	requireNotReady(t, b.c.EnsureReady(dsA))
	b.pump()
	require.Equal(t, 1, relists)
}
