// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

var (
	nodes  = schema.GroupResource{Resource: "nodes"}
	fresh  = freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "5"}
	stale  = freshness.Proof{Outcome: freshness.Stale, Events: 3}
	denied = freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonForbidden}
	absent = freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonNotFound}
	// busyForLong asks to wait for longer than an owner waits, and notSynced is of a cache without its first list.
	busyForLong = freshness.Proof{Outcome: freshness.Unknown, Reason: "Throttled", RetryAfter: time.Hour}
	notSynced   = freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonNotSynced}
	down        = freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonNoServer}
)

// script is a prover that answers for each resource as the test says, and lets waiters go on demand.
type script struct {
	mu      sync.Mutex
	nodes   freshness.Proof // pods are always fresh
	release chan struct{}
}

func (s *script) Prove(_ context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resource == nodes {
		return s.nodes
	}
	return fresh
}

func (s *script) answer(proof freshness.Proof) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = proof
}

func (s *script) Known(schema.GroupResource) (freshness.Proof, bool) { return freshness.Proof{}, false }

func (*script) Wrote(schema.GroupResource, string, rvtracker.Sent) {}

func (s *script) Wait(context.Context, schema.GroupResource, freshness.Proof) { <-s.release }

// guard puts these off.
type guard []livereads.PutOff

func (g *guard) Waits() []livereads.PutOff { return *g }

func TestProveFresh(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	tracker := rvtracker.New(rvtracker.Options{})
	reached := version("5")
	store := newStore(tracker, "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
	queue := make(chan string, 2)
	store.OnReady(func(key string) { queue <- key })
	ctx := consistency.WithOwner(t.Context(), store, owner, "uid")
	require.NoError(t, consistency.ProveFresh(ctx, store, nodes, pods), "nothing to prove with")
	require.NoError(t, consistency.ProveFresh(ctx, consistency.NewNoopConsistencyStore(), nodes), "upstream's stores do not know")

	prover := &script{nodes: stale, release: make(chan struct{})}
	store.prover = prover
	ctx = consistency.WithOwner(t.Context(), store, owner, "uid")
	require.NoError(t, consistency.ProveFresh(ctx, store, pods))
	reconcile := func() context.Context { return consistency.WithOwner(t.Context(), store, owner, "uid") }

	err := consistency.ProveFresh(ctx, store, pods, nodes)
	var unproven *UnprovenError
	require.ErrorAs(t, err, &unproven)
	require.Equal(t, owner, unproven.Owner)
	require.True(t, consistency.Parked(err), "no retry with backoff")
	require.False(t, consistency.Again(err), "nobody knows for how long")
	require.Equal(t, err, consistency.ProveFresh(ctx, store, nodes), "one answer for a reconcile")
	require.True(t, consistency.Parked(consistency.ProveFresh(reconcile(), store, nodes)), "again, while the first waits")
	waits := rowsOf(store.Waits)
	require.Len(t, waits, 1, "the page says who waits")
	require.Equal(t, "ns/owner", waits[0].Owner)
	require.Equal(t, nodes, waits[0].Resource)
	require.Contains(t, waits[0].Why, "stale by 3 changes")

	prover.answer(fresh)
	close(prover.release)
	require.Equal(t, "ns/owner", <-queue)
	require.Empty(t, rowsOf(store.Waits))
	since := time.Now().Add(-time.Minute)
	guarded(store, &guard{{Object: "ns/pod", Resource: nodes, For: "a proof", Why: "no server", Since: since}})
	require.Equal(t, []stalenessz.Wait{{Controller: store.name, Owner: "ns/pod", Resource: nodes, Reason: stalenessz.ForAction, For: "a proof", Why: "no server", Since: since}},
		rowsOf(store.Waits), "and what the guards put off")
	ctx = reconcile()
	require.NoError(t, consistency.ProveFresh(ctx, store, nodes))
	require.Empty(t, queue, "one retry for an owner")
	prover.answer(stale)
	require.NoError(t, consistency.ProveFresh(ctx, store, nodes), "what was proven stays so for the reconcile")
	ctx = reconcile()

	// The cache caught up while it was proven: what the reconcile had read before may lack something.
	prover.answer(freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "7"})
	reached = "7"
	err = consistency.ProveFresh(ctx, store, nodes)
	require.ErrorAs(t, err, &unproven)
	require.True(t, consistency.Again(err), "only a newer reading is wanted")
	require.Equal(t, "ns/owner", <-queue, "at once: the next try reads what is proven")
	require.NoError(t, consistency.ProveFresh(reconcile(), store, nodes))

	// A list that was compared with a cache says nothing of that cache later.
	prover.answer(freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "5", Exact: true})
	require.Error(t, consistency.ProveFresh(reconcile(), store, nodes))
	require.Equal(t, "ns/owner", <-queue)

	err = consistency.ProveFresh(t.Context(), store, nodes)
	require.Error(t, err)
	require.False(t, consistency.Parked(err), "without an owner nobody can be put back")
}

// An action that waits is tried again each second, and thousands may wait: the log tells of a wait as it begins, and of many by one line.
func TestTheLogTellsOfAWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		reached := version("5")
		store := passStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{nodes: stale, pods: stale}},
			map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
		putOff := func(owner string, resource schema.GroupResource) {
			t.Helper()
			ctx := consistency.WithOwner(klog.NewContext(t.Context(), logger), store, types.NamespacedName{Namespace: "ns", Name: owner}, "uid")
			require.Error(t, consistency.ProveFresh(ctx, store, resource))
		}
		defer time.Sleep(2 * time.Second) // The waits end.
		for began := time.Now(); time.Since(began) < 2*tellEvery; time.Sleep(2 * time.Second) {
			putOff("a", nodes)
		}
		require.Len(t, lines, 1, "the wait goes on")
		require.Contains(t, lines[0], `"controller"="test" "owner"={"name"="a" "namespace"="ns"} "resource"="nodes" "proof"=" stale by 3 changes`)
		require.Contains(t, lines[0], `"more"=0`)

		for _, owner := range []string{"b", "c", "d"} {
			putOff(owner, nodes)
		}
		require.Len(t, lines, 2, "one line for many")
		putOff("e", pods)
		require.Len(t, lines, 3, "another cache")
		time.Sleep(tellEvery)
		putOff("f", nodes)
		require.Len(t, lines, 4)
		require.Contains(t, lines[3], `"more"=2`, "c and d")
		a := types.NamespacedName{Namespace: "ns", Name: "a"}
		require.NoError(t, store.EnsureReady(a), "it does not ask")
		time.Sleep(sameWait + time.Second)
		require.NoError(t, store.EnsureReady(a))
		putOff("a", nodes)
		require.Len(t, lines, 5, "a new wait")
	})
}

// staleOnceKnown are caches that were proven once, and are always stale.
type staleOnceKnown struct{ verdicts }

func (*staleOnceKnown) Known(schema.GroupResource) (freshness.Proof, bool) {
	return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "5"}, true
}

// Thousands of actions that go on although a cache lags are one line, too.
func TestTheLogTellsOnceOfManyThatGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := 0
		logger := funcr.New(func(_, args string) {
			if strings.Contains(args, "the disruptive action goes on") {
				goOn++
			}
		}, funcr.Options{})
		reached := version("5")
		store := passStore(t.Context(), &staleOnceKnown{verdicts{of: map[schema.GroupResource]freshness.Proof{nodes: stale}}}, map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached})
		prove := func(owner string) error {
			ctx := consistency.WithOwner(klog.NewContext(t.Context(), logger), store, types.NamespacedName{Namespace: "ns", Name: owner}, "uid")
			return consistency.ProveFresh(ctx, store, nodes)
		}
		owners := []string{"a", "b", "c"}
		for _, owner := range owners {
			require.Error(t, prove(owner))
		}
		time.Sleep(2 * time.Second) // The waits end.
		for _, owner := range owners {
			require.NoError(t, prove(owner))
		}
		require.Equal(t, 1, goOn)
	})
}

// An owner that deletes for two reasons, each depending on other caches, waits for each by itself: a proof for one says nothing of the other, and does not have it wait
// anew.
func TestAProofForOneActionLeavesTheWaitOfAnother(t *testing.T) {
	for name, prover := range map[string]Prover{
		"stale": &staleOnceKnown{verdicts{of: map[schema.GroupResource]freshness.Proof{nodes: fresh, pods: stale}}},
		"slow":  &slowOnceKnown{staleOnceKnown{verdicts{of: map[schema.GroupResource]freshness.Proof{nodes: fresh}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := version("5")
				store := passStore(t.Context(), prover, map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
				prove := func(resources ...schema.GroupResource) error {
					ctx := consistency.WithOwner(t.Context(), store, types.NamespacedName{Namespace: "ns", Name: "owner"}, "uid")
					return consistency.ProveFresh(ctx, store, resources...)
				}
				require.Error(t, prove(nodes, pods))
				require.Error(t, prove(pods), "another action, in the same wait")
				time.Sleep(time.Minute / 4) // The wait ends.
				require.NoError(t, prove(nodes, pods), "the cache has what the server had when it was put off")
				require.NoError(t, prove(pods), "that was put off then, too")
				require.Error(t, prove(pods), "the next waits anew")
				require.Error(t, prove(nodes, pods))
				time.Sleep(time.Minute) // The wait ends.
				synctest.Wait()
			})
		})
	}
}

// An action that is not asked about because another one of the same reconcile was put off for the same cache waits from then on, too.
func TestTheSecondActionOfAReconcileWaitsFromThenOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := version("5")
		prover := &staleOnceKnown{verdicts{of: map[schema.GroupResource]freshness.Proof{nodes: fresh, pods: stale}}}
		store := passStore(t.Context(), prover, map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
		reconcile := func() context.Context {
			return consistency.WithOwner(t.Context(), store, types.NamespacedName{Namespace: "ns", Name: "owner"}, "uid")
		}
		ctx := reconcile()
		require.Error(t, consistency.ProveFresh(ctx, store, nodes, pods))
		require.Error(t, consistency.ProveFresh(ctx, store, pods))
		time.Sleep(2 * time.Second) // The wait ends.
		require.NoError(t, consistency.ProveFresh(reconcile(), store, pods))
	})
}

// An action that was not wanted for a whole wait of another action of its owner waits anew.
func TestAnActionThatIsWantedAgainLaterWaitsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := version("5")
		prover := &staleOnceKnown{verdicts{of: map[schema.GroupResource]freshness.Proof{nodes: stale, pods: stale}}}
		store := passStore(t.Context(), prover, map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
		wait := func(resources ...schema.GroupResource) {
			t.Helper()
			ctx := consistency.WithOwner(t.Context(), store, types.NamespacedName{Namespace: "ns", Name: "owner"}, "uid")
			require.Error(t, consistency.ProveFresh(ctx, store, resources...))
			time.Sleep(2 * time.Second) // The wait ends.
		}
		wait(pods)
		wait(nodes)
		wait(nodes, pods)
		wait(pods)
	})
}

// What the cache had when the reconcile began is enough, though a later proof is known by the time that it asks.
func TestAnActionGoesOnByWhatWasKnownWhenItsReconcileBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := version("5")
		prover := &moving{verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}}, &reached}
		store := passStore(t.Context(), prover, map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
		reconcile := func() context.Context { return consistency.WithOwnerRead(t.Context(), store, aSet("a", 3), setKind) }
		require.Error(t, consistency.ProveFresh(reconcile(), store, pods))
		time.Sleep(2 * time.Second) // The wait ends.
		ctx := reconcile()
		reached = "6"
		require.NoError(t, consistency.ProveFresh(ctx, store, pods))
	})
}

// moving is a cache that is always stale, and of which all that it has is known.
type moving struct {
	verdicts
	cache *version
}

func (m *moving) Known(schema.GroupResource) (freshness.Proof, bool) {
	return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: string(*m.cache), At: time.Now()}, true
}

// slowOnceKnown is a server of which the proofs of pods come after two seconds, and are of no use then. What it had ten seconds ago is proven.
type slowOnceKnown struct{ staleOnceKnown }

func (*slowOnceKnown) Known(schema.GroupResource) (freshness.Proof, bool) {
	return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "5", At: time.Now().Add(-10 * time.Second)}, true
}

func (s *slowOnceKnown) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	if resource == pods {
		time.Sleep(2 * promptly)
		return down
	}
	return s.staleOnceKnown.Prove(ctx, resource, asOf)
}

// version is a cache at a resource version.
type version string

func (v *version) LastStoreSyncResourceVersion() string { return string(*v) }

func TestFirstReconcileWaitsForProof(t *testing.T) {
	metrics.Register()
	for name, tc := range map[string]struct {
		first freshness.Proof
		waits bool
		after time.Duration
	}{
		"fresh":              {first: fresh},
		"stale":              {first: stale, waits: true},
		"server down":        {first: down, waits: true},
		"cannot ever be had": {first: absent},
		"forbidden by an apiserver that has just started": {first: denied, waits: true},
		"forbidden for long":                              {first: denied, after: 30 * time.Second},
		"stale for a while":                               {first: stale, waits: true, after: rvtracker.OwnerLimits.Stale - time.Second},
		"stale for long":                                  {first: stale, after: rvtracker.OwnerLimits.Stale},
		"proofs fail for a while":                         {first: down, waits: true, after: rvtracker.OwnerLimits.Unknown - time.Second},
		"proofs fail for long":                            {first: down, after: rvtracker.OwnerLimits.Unknown},
		"server asks to wait for longer":                  {first: busyForLong, after: rvtracker.OwnerLimits.Unknown},
		"no first list for long":                          {first: notSynced, waits: true, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				owner := types.NamespacedName{Name: "owner"}
				prover := &script{nodes: tc.first}
				var woken []string
				store := newStore(rvtracker.New(rvtracker.Options{}), "test", nil)
				store.OnReady(func(key string) { woken = append(woken, key) })
				all := store.held.holdStartOf(time.Now(), nodes)
				err := store.gate(owner)
				require.True(t, consistency.Parked(err), "before anything is known")
				require.ErrorContains(t, err, "as new as the start of leadership (nodes, for 0s): the cache is being proven")
				go store.start(t.Context(), prover, all, []schema.GroupResource{nodes, pods})
				time.Sleep(tc.after)
				synctest.Wait()
				if tc.waits {
					require.EqualValues(t, 1, parked(t, "test", stalenessz.ForStart))
					require.Empty(t, woken)
					require.Len(t, rowsOf(store.Waits), 1)
					require.ErrorContains(t, store.gate(owner), "waits for a proof that the caches are as new as the start of leadership (nodes, for ")
					prover.answer(fresh)
					time.Sleep(retryStart)
					synctest.Wait()
				}
				require.Equal(t, []string{"owner"}, woken)
				require.NoError(t, store.gate(owner))
				require.Zero(t, parked(t, "test", stalenessz.ForStart))
			})
		})
	}
}

// parked is what the metric says of a controller's parked owners.
func parked(t *testing.T, controller, reason string) (owners float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if family.GetName() == "stale_controller_parked_owners" && testutil.LabelsMatch(series, map[string]string{"controller": controller, "reason": reason}) {
				owners = series.GetGauge().GetValue()
			}
		}
	}
	return owners
}

// hookedStore leaves it to the test to tell of its moves.
type hookedStore struct{}

func (hookedStore) LastStoreSyncResourceVersion() string    { return "1" }
func (hookedStore) GetByKey(string) (any, bool, error)      { return nil, false, nil }
func (hookedStore) AddResourceVersionObserver(func(string)) {}
func (hookedStore) AddReplaceObserver(func(string))         {}

// Where nothing can ever be proven, a deletion goes on as upstream's: being stuck is as bad as acting on stale data.
//
//conformance:kep-5504 Risks and Mitigations: an object whose version cannot be compared does no harm
func TestDeletionsGoOnWhereVersionsCannotBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
		reached := version("5")
		store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
		prover := &script{release: make(chan struct{})}
		close(prover.release)
		store.prover = prover
		prove := func() error {
			return consistency.ProveFresh(consistency.WithOwner(t.Context(), store, owner, "uid"), store, nodes, pods)
		}
		for _, why := range []freshness.Proof{down, denied, stale} {
			prover.answer(why)
			for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Second) {
				require.Error(t, prove(), "%s may end", why)
			}
		}
		for range 2 {
			prover.answer(freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonIncomparable})
			require.Error(t, prove(), "it may be one opaque version among numbers")
			time.Sleep(goOnAfter - time.Millisecond)
			require.Error(t, prove())
			time.Sleep(time.Millisecond)
			require.NoError(t, prove())
			require.NoError(t, prove(), "the next need not wait again")
			prover.answer(fresh)
			require.NoError(t, prove())
		}
	})
}
