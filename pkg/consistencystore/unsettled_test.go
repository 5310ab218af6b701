// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// lateProver proves up to the time that the test sets, and looks again after a second.
type lateProver struct {
	mu    sync.Mutex
	upTo  time.Time
	never bool
}

func (p *lateProver) set(upTo time.Time, never bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upTo, p.never = upTo, never
}

func (p *lateProver) Prove(_ context.Context, _ schema.GroupResource, asOf time.Time) freshness.Proof {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.never:
		return denied
	case asOf.After(p.upTo):
		return down
	}
	return fresh
}

func (p *lateProver) Known(schema.GroupResource) (freshness.Proof, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return freshness.Proof{Outcome: freshness.Proven, At: p.upTo}, !p.upTo.IsZero()
}

func (*lateProver) Wrote(schema.GroupResource, string, rvtracker.Sent) {}

func (p *lateProver) Wait(ctx context.Context, _ schema.GroupResource, _ freshness.Proof) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// scriptedProver gives the test's answers.
type scriptedProver struct {
	lateProver
	proof func() freshness.Proof
}

func (p *scriptedProver) Prove(context.Context, schema.GroupResource, time.Time) freshness.Proof {
	return p.proof()
}

func TestLostAnswersAreSettled(t *testing.T) {
	metrics.Register()
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		prover, woken, events := &lateProver{}, make(chan string, 9), record.NewFakeRecorder(9)
		reached := version("5")
		store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
		store.ctx, store.prover = t.Context(), prover
		store.name, store.reports = "daemonset", NewReporter(events)
		store.OnReady(func(key string) { woken <- key })

		_, tracked := store.Unsettled(owner, "uid", schema.GroupResource{Resource: "events"}, 0)
		require.False(t, tracked)
		require.NoError(t, store.EnsureReady(owner), "there is no cache of them")

		store.Unsettled(owner, "uid", pods, transport.NeverRetried)
		first := time.Now()
		err := store.EnsureReady(owner)
		require.ErrorContains(t, err, "waits for the outcome of a write whose answer was lost (pods, for ")
		require.True(t, consistency.Parked(err))
		require.NoError(t, store.EnsureReady(types.NamespacedName{Name: "other"}))
		time.Sleep(30 * time.Second)
		store.Unsettled(owner, "uid", pods, transport.NeverRetried)
		store.Unsettled(owner, "uid", nodes, transport.NeverRetried)
		prover.set(first, false)
		time.Sleep(reportAfter)
		require.True(t, consistency.Parked(store.EnsureReady(owner)), "a proof from before the last loss proves nothing")
		require.Empty(t, woken)
		require.EqualValues(t, 1, parked(t, "test", stalenessz.ForUnsettled))
		require.Len(t, events.Events, 1, "a long wait is reported once")
		require.Contains(t, <-events.Events, `is at resource version "5" and waits for a proof as of the write whose answer was lost`)

		prover.set(time.Now(), false)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, woken, 1)
		require.Equal(t, "ns/owner", <-woken)
		require.NoError(t, store.EnsureReady(owner))
		require.True(t, store.SeenOwnWrites(owner))
		require.Zero(t, parked(t, "test", stalenessz.ForUnsettled))

		// By the time of a retry the loss may be settled by what others had proven: nobody waits.
		store.Unsettled(owner, "uid", pods, transport.NeverRetried)
		time.Sleep(time.Minute)
		prover.set(time.Now(), false)
		require.NoError(t, store.EnsureReady(owner))
		require.Empty(t, woken)
		time.Sleep(time.Second)

		// An owner that is gone waits for nothing.
		store.Unsettled(owner, "uid", pods, transport.NeverRetried)
		store.Clear(owner, "another")
		require.Error(t, store.EnsureReady(owner))
		store.Clear(owner, "uid")
		require.NoError(t, store.EnsureReady(owner))
		require.Equal(t, "ns/owner", <-woken, "it was parked")

		// What can never be proven holds nobody, but upstream's expectations stand.
		prover.set(time.Time{}, true)
		store.Unsettled(owner, "uid", pods, transport.NeverRetried)
		require.Error(t, store.EnsureReady(owner))
		synctest.Wait()
		require.Empty(t, woken, "an apiserver that has just started forbids for a moment")
		require.Equal(t, "ns/owner", <-woken)
		require.NoError(t, store.EnsureReady(owner))
		require.False(t, store.SeenOwnWrites(owner))
	})
}

func TestWhichAnswersAreLost(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	failed := func(code int32, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			w.WriteHeader(int(code))
			assert.NoError(t, json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: code, Message: message}))
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		lost   bool
	}{
		"conflict":     {status(http.StatusConflict), false},
		"throttled":    {status(http.StatusTooManyRequests), false},
		"not found":    {status(http.StatusNotFound), false},
		"timeout":      {status(http.StatusGatewayTimeout), true},
		"server error": {status(http.StatusInternalServerError), true},
		"webhook down": {failed(http.StatusInternalServerError, `Internal error occurred: failed calling webhook "quota.example.com": connection refused`), false},
		"etcd failed":  {failed(http.StatusInternalServerError, "Internal error occurred: etcdserver: request timed out"), true},
		"cut off":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"cut off later": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("{"))
			panic(http.ErrAbortHandler)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tc.answer)
			defer server.Close()
			owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
			reached := version("5")
			store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			store.ctx, store.prover = ctx, &lateProver{}
			client := transport.Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: server.URL}}, nil).ClientOrDie("test")
			for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
				_, err := client.CoreV1().Pods("ns").Create(consistency.WithOwner(ctx, store, owner, "uid"), &corev1.Pod{}, metav1.CreateOptions{DryRun: dryRun})
				require.Error(t, err)
				require.Equal(t, tc.lost && dryRun == nil, store.EnsureReady(owner) != nil)
				if strings.HasPrefix(name, "webhook") {
					require.ErrorContains(t, err, "failed calling webhook", "the controller still gets the answer")
				}
			}
			require.Error(t, client.CoreV1().Pods("ns").Delete(consistency.WithOwner(ctx, store, owner, "uid"), "pod", metav1.DeleteOptions{}))
			if strings.HasPrefix(name, "webhook") {
				require.Error(t, store.EnsureReady(owner), "a deletion may have been made in part")
			}
		})
	}
}

func rowsOf(waits func(*stalenessz.Longest)) []stalenessz.Wait {
	var out stalenessz.Longest
	waits(&out)
	return out.Rows()
}

// The page lists who waits for the outcome of a write, since when, and why it is not known yet.
func TestLostAnswersAreListed(t *testing.T) {
	metrics.Register()
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	synctest.Test(t, func(t *testing.T) {
		reached := version("5")
		store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
		prover := &lateProver{}
		store.ctx, store.prover = t.Context(), prover
		require.Empty(t, rowsOf(store.Waits))

		lost := time.Now()
		store.Unsettled(owner, "uid", pods, transport.NeverRetried)
		require.Empty(t, rowsOf(store.Waits), "it is not to be reconciled")
		time.Sleep(time.Second)
		require.Error(t, store.EnsureReady(owner))
		synctest.Wait()
		require.Equal(t, []stalenessz.Wait{{Controller: "test", Owner: "ns/owner", Resource: pods, Since: lost, Reason: stalenessz.ForUnsettled,
			For: "the outcome of a write whose answer was lost", Why: down.String()}}, rowsOf(store.Waits))

		store.Unsettled(owner, "uid", nodes, 30*time.Second)
		waits := rowsOf(store.Waits)
		require.Len(t, waits, 2, "one for each resource")
		for _, w := range waits {
			require.Equal(t, "the server asks to wait for another 30s", w.Why)
		}
		prover.set(time.Now(), false)
		time.Sleep(time.Minute)
		require.NoError(t, store.EnsureReady(owner))
		require.Empty(t, rowsOf(store.Waits))
	})
}

// goroutines is how many there are. NumGoroutine alone counts one that has ended, and that synctest.Wait takes for ended, until its
// thread has had a processor to say so: it has once the world was stopped.
func goroutines() int {
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return goruntime.NumGoroutine()
}

// A server may refuse proofs without end and take writes all the same. One that is not reached takes none.
func TestOutcomesAreNotWaitedForWithoutEnd(t *testing.T) {
	metrics.Register()
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	throttled := freshness.Proof{Outcome: freshness.Unknown, Reason: "Throttled"}
	for name, test := range map[string]struct {
		proofs []freshness.Proof // each for 10 min, the last without end
		lease  bool
		after  time.Duration
	}{
		"stale":                         {proofs: []freshness.Proof{stale}, after: rvtracker.OwnerLimits.Stale},
		"refused":                       {proofs: []freshness.Proof{throttled}, after: rvtracker.OwnerLimits.Unknown},
		"no server":                     {proofs: []freshness.Proof{down, throttled}, after: 10*time.Minute + rvtracker.OwnerLimits.Unknown},
		"no answer":                     {proofs: []freshness.Proof{{Outcome: freshness.Unknown, Reason: freshness.ReasonTimeout}, throttled}, after: 10*time.Minute + rvtracker.OwnerLimits.Unknown},
		"no answer, but to the renewal": {proofs: []freshness.Proof{down}, lease: true, after: rvtracker.OwnerLimits.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, woken := time.Now(), make(chan string, 9)
				reached := version("5")
				store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
				store.ctx, store.prover = t.Context(), &scriptedProver{proof: func() freshness.Proof {
					return test.proofs[min(int(time.Since(began)/(10*time.Minute)), len(test.proofs)-1)]
				}}
				if test.lease {
					store.unsettled.renewed = time.Now
				}
				store.OnReady(func(key string) { woken <- key })
				store.Unsettled(owner, "uid", pods, transport.NeverRetried)
				require.True(t, consistency.Parked(store.EnsureReady(owner)))
				time.Sleep(test.after - 2*time.Second)
				require.Empty(t, woken)
				require.True(t, consistency.Parked(store.EnsureReady(owner)))
				require.Equal(t, "ns/owner", <-woken)
				require.LessOrEqual(t, time.Since(began), test.after+3*time.Second)
				require.NoError(t, store.EnsureReady(owner))
				require.False(t, store.SeenOwnWrites(owner), "upstream's expectations stand")
			})
		})
	}
}

// However many owners wait for the outcome of their writes, one goroutine proves a resource for all.
func TestManyLostAnswersTakeOneGoroutine(t *testing.T) {
	metrics.Register()
	const owners = 20_000
	synctest.Test(t, func(t *testing.T) {
		reached := version("5")
		store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: &reached, pods: &reached})
		prover, woken := &lateProver{}, map[string]int{}
		var mu sync.Mutex
		store.ctx, store.prover = t.Context(), prover
		store.OnReady(func(key string) {
			mu.Lock()
			defer mu.Unlock()
			woken[key]++
		})
		name := func(i int) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: strconv.Itoa(i)} }
		before := goroutines()
		for i := range owners {
			store.Unsettled(name(i), "uid", pods, transport.NeverRetried)
			if i%2 == 0 {
				store.Unsettled(name(i), "uid", nodes, transport.NeverRetried)
			}
			if i%1000 == 999 {
				time.Sleep(10 * time.Millisecond) // The last loss is later again and again.
			}
			require.True(t, consistency.Parked(store.EnsureReady(name(i))))
		}
		synctest.Wait()
		require.LessOrEqual(t, goroutines()-before, 2+2, "one for each resource")
		store.Unsettled(types.NamespacedName{Name: "later"}, "uid", pods, 10*time.Second)
		prover.set(time.Now(), false)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		mu.Lock()
		require.Len(t, woken, owners, "one that the server has put off is not yet woken")
		for _, n := range woken {
			require.Equal(t, 1, n)
		}
		mu.Unlock()
		time.Sleep(8 * time.Second)
		synctest.Wait()
		mu.Lock()
		require.Equal(t, 1, woken["later"])
		mu.Unlock()
		require.LessOrEqual(t, goroutines(), before)
		store.unsettled.mu.Lock()
		defer store.unsettled.mu.Unlock()
		require.Empty(t, store.unsettled.owners)
		require.Empty(t, store.unsettled.settling)
	})
}
