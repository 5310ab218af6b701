// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// world is a server with ten objects and a store that has seen them, in a bubble.
type world struct {
	*testing.T
	api  *fakeAPI
	view *fakeView
	p    *Prover
	c    *rvtracker.Controller
}

func inWorld(t *testing.T, opts Options, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, api: &fakeAPI{rv: 100, bookmarkAt: 1700 * time.Millisecond}}
		for i := range 10 {
			w.api.write("ns/"+string(rune('a'+i)), "uid", false)
		}
		w.view = newView(w.api)
		w.view.sync(w.api.bump(0))
		opts.Config = serve(t, w.api)
		w.p = newProver(t, opts)
		w.c = track(w.p, leases, w.view)
		test(w)
	})
}

// send begins a write.
func (w *world) send() rvtracker.Sent { return w.c.Sending(leases.GroupResource()) }

// wrote has the prover take the answer to a write for a fence.
func (w *world) wrote(rv int, sent rvtracker.Sent) {
	w.p.Wrote(w.Context(), leases, w.api.text(rv), sent)
}

func (w *world) prove(asOf time.Time) Proof {
	w.Helper()
	proof, err := w.p.Prove(w.Context(), leases, asOf)
	require.NoError(w, err)
	require.Equal(w, leases, proof.Resource)
	require.Equal(w, proof.Outcome == Proven, proof.Fresh())
	return proof
}

func (w *world) requireProven(proof Proof, method string) {
	w.Helper()
	require.Equal(w, Proven, proof.Outcome, proof.String())
	require.Equal(w, method, proof.Method)
}

func (w *world) requireUnknown(proof Proof, reason Reason) {
	w.Helper()
	require.Equal(w, Unknown, proof.Outcome, proof.String())
	require.Equal(w, reason, proof.Reason, proof.String())
	require.Error(w, proof.Err)
}

// fail makes the server answer the matching requests by a Status.
func (w *world) fail(match func(*http.Request) bool, code int, reason metav1.StatusReason, header map[string]string, causes ...metav1.StatusCause) {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.api.answer = func(rw http.ResponseWriter, r *http.Request) bool {
		if !match(r) {
			return false
		}
		for k, v := range header {
			rw.Header().Set(k, v)
		}
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: "made up by the test",
		}
		if len(causes) > 0 {
			status.Details = &metav1.StatusDetails{Causes: causes}
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		json.NewEncoder(rw).Encode(status)
		return true
	}
}

func (w *world) heal() {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.api.answer = nil
}

func TestFreshCacheCostsOneFence(t *testing.T) {
	for name, api := range map[string]func(*fakeAPI){
		"protobuf":      func(*fakeAPI) {},
		"json":          func(a *fakeAPI) { a.json = true },
		"whole objects": func(a *fakeAPI) { a.whole = true },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				api(w.api)
				asOf := time.Now()
				proof := w.prove(asOf)
				w.requireProven(proof, methodFence)
				require.Equal(w, "110", proof.ResourceVersion)
				require.Equal(w, asOf, proof.At)

				// What is proven costs nothing, also for earlier times.
				w.requireProven(w.prove(asOf.Add(-time.Hour)), methodEarlier)
				w.requireProven(w.prove(time.Time{}), methodEarlier)
				require.Len(w, w.api.requests, 1)
				r := w.api.requests[0]
				require.Equal(w, "limit=1", r.URL.RawQuery)
				require.Equal(w, "/apis/coordination.k8s.io/v1/leases", r.URL.Path)
				require.Equal(w, "kube-controller-manager/v1 freshness", r.UserAgent())
				require.Regexp(w, "^application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;", r.Header.Get("Accept"))

				// A later time needs a later fence.
				time.Sleep(time.Second)
				w.requireProven(w.prove(time.Now()), methodFence)
				require.Len(w, w.api.requests, 2)
			})
		})
	}
}

func TestBusyCacheConfirms(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		w.api.write("ns/a", "uid", false)
		go func() {
			time.Sleep(5 * time.Millisecond)
			w.view.sync(w.api.bump(0))
		}()
		begin := time.Now()
		proof := w.prove(begin)
		w.requireProven(proof, methodWait)
		require.Equal(w, 5*time.Millisecond, time.Since(begin))
		require.Equal(w, "161", proof.ResourceVersion)
		require.Len(w, w.api.requests, 1)
	})
}

func TestInconclusive(t *testing.T) {
	tooLarge := metav1.StatusCause{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}
	for _, tc := range []struct {
		name   string
		match  func(*http.Request) bool
		small  int
		code   int
		status metav1.StatusReason
		header map[string]string
		causes []metav1.StatusCause
		reason Reason
		retry  time.Duration
	}{
		{name: "429", match: isFence, code: 429, status: metav1.StatusReasonTooManyRequests, header: map[string]string{"Retry-After": "7"}, reason: reasonThrottled, retry: 7 * time.Second},
		{name: "429 without end", match: isFence, code: 429, status: metav1.StatusReasonTooManyRequests, header: map[string]string{"Retry-After": "86400"}, reason: reasonThrottled, retry: time.Minute},
		{name: "429 to the list", match: isList, code: 429, status: metav1.StatusReasonTooManyRequests, header: map[string]string{"Retry-After": "3"}, reason: reasonThrottled, retry: 3 * time.Second},
		{name: "429 to the watch", match: isWatch, small: -1, code: 429, status: metav1.StatusReasonTooManyRequests, header: map[string]string{"Retry-After": "3"}, reason: reasonThrottled, retry: 3 * time.Second},
		{name: "504 too large", match: isFence, code: 504, status: metav1.StatusReasonTimeout, header: map[string]string{"Retry-After": "2"}, causes: []metav1.StatusCause{tooLarge}, reason: reasonTooLargeRV, retry: 2 * time.Second},
		{name: "504 too large to the watch", match: isWatch, small: -1, code: 504, status: metav1.StatusReasonTimeout, causes: []metav1.StatusCause{tooLarge}, reason: reasonTooLargeRV, retry: time.Second},
		{name: "504", match: isFence, code: 504, status: metav1.StatusReasonTimeout, reason: ReasonTimeout, retry: time.Second},
		{name: "410 to the list", match: isList, code: 410, status: metav1.StatusReasonExpired, reason: reasonGone, retry: time.Second},
		{name: "410 to the watch", match: isWatch, small: -1, code: 410, status: metav1.StatusReasonGone, reason: reasonGone, retry: time.Second},
		{name: "403", match: isFence, code: 403, status: metav1.StatusReasonForbidden, reason: ReasonForbidden, retry: time.Second},
		{name: "401", match: isFence, code: 401, status: metav1.StatusReasonUnauthorized, reason: ReasonForbidden, retry: time.Second},
		{name: "404", match: isFence, code: 404, status: metav1.StatusReasonNotFound, reason: ReasonNotFound, retry: 10 * time.Second},
		{name: "500", match: isFence, code: 500, status: metav1.StatusReasonInternalError, reason: reasonServerError, retry: time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, Options{SmallCollection: tc.small}, func(w *world) {
				w.api.bump(50)
				w.fail(tc.match, tc.code, tc.status, tc.header, tc.causes...)
				proof := w.prove(time.Now())
				w.requireUnknown(proof, tc.reason)
				require.Equal(w, tc.retry, proof.RetryAfter)

				// No request follows before that, and callers get the reason.
				sent := w.api.count(tc.match)
				require.Equal(w, 1, sent, "no retries")
				time.Sleep(tc.retry - 300*time.Millisecond)
				again := w.prove(time.Now())
				w.requireUnknown(again, tc.reason)
				require.LessOrEqual(w, again.RetryAfter, 300*time.Millisecond)
				require.Equal(w, sent, w.api.count(tc.match))

				w.heal()
				time.Sleep(300 * time.Millisecond)
				require.True(w, w.prove(time.Now()).Fresh())
			})
		})
	}
}

// A large cache that is older than the server's history has to be relisted, but is asked about again right then.
func TestGoneWaitsForTheRelistAndNoLonger(t *testing.T) {
	inWorld(t, Options{SmallCollection: -1}, func(w *world) {
		w.api.bump(50)
		w.api.compactedTo = 150
		proof := w.prove(time.Now())
		w.requireUnknown(proof, reasonGone)
		require.Equal(w, "160", proof.ResourceVersion)
		w.requireUnknown(w.prove(time.Now()), reasonGone)
		require.Equal(w, 1, w.api.count(isWatch))
		w.view.sync(160)
		w.api.bump(10)
		w.requireProven(w.prove(time.Now()), methodWatch)
	})
}

// A list says of a small one what it lacks, and nobody has to wait for that because a watch was refused.
func TestGoneFromAWatchHoldsNoList(t *testing.T) {
	for name, missing := range map[string]int{"quiet": 0, "behind": 1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.api.bump(50)
				for range missing {
					w.api.write("ns/a", "uid", false)
				}
				w.api.compactedTo = 150
				proof, err := w.p.ProveByWatch(w.Context(), leases, w.takeFence().TakenAt)
				require.NoError(w, err)
				w.requireUnknown(proof, reasonGone)
				proof, err = w.p.ProveAtOnce(w.Context(), leases, time.Now())
				require.NoError(w, err)
				require.Equal(w, methodList, proof.Method)
				require.Equal(w, missing, proof.Events)
			})
		})
	}
}

// As when the client is moved to another apiserver: the stream ends, but lists are answered.
func TestABrokenWatchHoldsNoList(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		w.api.answer = func(_ http.ResponseWriter, r *http.Request) bool {
			if isWatch(r) {
				panic(http.ErrAbortHandler)
			}
			return false
		}
		proof, err := w.p.ProveByWatch(w.Context(), leases, w.takeFence().TakenAt)
		require.NoError(w, err)
		w.requireUnknown(proof, reasonNoBookmark)
		proof, err = w.p.ProveAtOnce(w.Context(), leases, time.Now())
		require.NoError(w, err)
		w.requireProven(proof, methodList)
	})
}

func TestNoServer(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.answer = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
		w.requireUnknown(w.prove(time.Now()), ReasonNoServer)
	})
}

func TestNoAnswer(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.arrived = func(r *http.Request) { <-r.Context().Done() }
		begin := time.Now()
		w.requireUnknown(w.prove(begin), ReasonTimeout)
		require.Equal(w, 10*time.Second, time.Since(begin))
	})
}

func TestNoBookmark(t *testing.T) {
	inWorld(t, Options{SmallCollection: -1}, func(w *world) {
		w.api.bookmarkAt = 0
		w.api.bump(50)
		begin := time.Now()
		w.requireUnknown(w.prove(begin), reasonNoBookmark)
		require.Equal(w, 3250*time.Millisecond, time.Since(begin))
	})
}

//conformance:kep-5504 Story 3: who meets versions that cannot be compared falls back to something dearer
func TestIncomparable(t *testing.T) {
	opaque := func(int) string { return "opaque" }
	t.Run("server", func(t *testing.T) {
		inWorld(t, Options{}, func(w *world) {
			w.api.format = opaque
			w.requireUnknown(w.prove(time.Now()), ReasonIncomparable)
		})
	})
	t.Run("cache", func(t *testing.T) {
		inWorld(t, Options{}, func(w *world) {
			w.view.set("opaque", nil)
			w.requireUnknown(w.prove(time.Now()), ReasonIncomparable)
		})
	})
	t.Run("cache without one", func(t *testing.T) {
		inWorld(t, Options{}, func(w *world) {
			w.view.set("", nil)
			w.requireUnknown(w.prove(time.Now()), ReasonNotSynced)
		})
	})
	t.Run("both the same", func(t *testing.T) {
		inWorld(t, Options{}, func(w *world) {
			w.api.format = opaque
			w.view.set("opaque", nil)
			w.requireUnknown(w.prove(time.Now()), ReasonIncomparable)
		})
	})
	t.Run("longer than 64 bits", func(t *testing.T) {
		inWorld(t, Options{}, func(w *world) {
			w.api.format = func(rv int) string { return "1" + "00000000000000000000000000"[:20] + time.Duration(rv).String()[:3] }
			w.view.sync(110)
			w.requireProven(w.prove(time.Now()), methodFence)
		})
	})
}

func TestFutureAndUnregistered(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		proof := w.prove(time.Now().Add(time.Second))
		w.requireUnknown(proof, reasonInFuture)
		require.Equal(w, time.Second, proof.RetryAfter)

		other := leases
		other.Resource = "others"
		proof, err := w.p.Prove(w.Context(), other, time.Now())
		require.ErrorIs(w, err, errNotRegistered)
		require.Equal(w, ReasonNotRegistered, proof.Reason)
		require.Empty(w, w.api.requests)
	})
}

func TestBudget(t *testing.T) {
	inWorld(t, Options{QPS: 2, Burst: 3}, func(w *world) {
		begin := time.Now()
		for range 5 { // three at once, the others half a second apart
			time.Sleep(time.Microsecond) // else they ask for the same time
			_, err := w.p.Fence(w.Context(), leases)
			require.NoError(w, err)
		}
		require.InDelta(w, 1, time.Since(begin).Seconds(), 0.001)

		var many sync.WaitGroup
		spent, taken := 0, 0
		var mu sync.Mutex
		for i := range 10 {
			gvr := leases
			gvr.Resource = "r" + string(rune('a'+i))
			many.Go(func() {
				_, err := w.p.Fence(w.Context(), gvr)
				mu.Lock()
				defer mu.Unlock()
				var failed *Error
				switch {
				case err == nil:
					taken++
				case assertAs(w, err, &failed) && failed.Reason == reasonBudgetSpent:
					require.Positive(w, failed.RetryAfter)
					spent++
				}
			})
		}
		many.Wait()
		require.Equal(w, 2, taken)
		require.Equal(w, 8, spent)
	})
}

func assertAs(t require.TestingT, err error, target **Error) bool {
	require.ErrorAs(t, err, target)
	return true
}

// An apiserver that has just started forbids what it allows a second later; one that goes on forbidding is asked rarely.
func TestForbiddenForAMomentAndForLong(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		w.fail(isFence, 403, metav1.StatusReasonForbidden, nil)
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(200 * time.Millisecond) {
			w.requireUnknown(w.prove(time.Now()), ReasonForbidden)
		}
		require.LessOrEqual(w, w.api.count(isFence), authorizing+int(time.Minute/refusedBackoff))
	})
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		w.fail(isFence, 403, metav1.StatusReasonForbidden, nil)
		w.requireUnknown(w.prove(time.Now()), ReasonForbidden)
		w.heal()
		time.Sleep(errorBackoff)
		require.True(w, w.prove(time.Now()).Fresh())
	})
}
