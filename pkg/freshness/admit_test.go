// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
)

// custom is the nth custom resource.
func custom(n int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "broken" + strconv.Itoa(n)}
}

func isCustom(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/apis/example.com/") }

// inLevel has every answer name a priority level, as kube-apiserver does.
func inLevel(level string, answer func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set(flowcontrol.ResponseHeaderMatchedPriorityLevelConfigurationUID, level)
		return answer(w, r)
	}
}

// unready is the answer of a watch cache that is not ready.
func unready(w http.ResponseWriter, retryAfter int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	w.WriteHeader(http.StatusTooManyRequests)
	json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "storage is (re)initializing",
		Details: &metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter)},
	})
}

// rejected is the answer of API Priority and Fairness.
func rejected(w http.ResponseWriter, retryAfter int) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// answerBy has the server answer all requests by this function, unless it returns false.
func (w *world) answerBy(answer func(http.ResponseWriter, *http.Request) bool) {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.api.answer = answer
}

// requireFence takes a fence, which must succeed at once.
func (w *world) requireFence(gvr schema.GroupVersionResource) {
	w.Helper()
	time.Sleep(time.Millisecond) // What was taken now would be good for it.
	begin := time.Now()
	_, err := w.p.Fence(w.Context(), gvr)
	require.NoError(w, err)
	require.Equal(w, begin, time.Now(), "it waited")
}

// requireNoFence takes one that must fail, and returns for how long it is held.
func (w *world) requireNoFence(gvr schema.GroupVersionResource, reason Reason) time.Duration {
	w.Helper()
	time.Sleep(time.Millisecond)
	_, err := w.p.Fence(w.Context(), gvr)
	var failed *Error
	require.ErrorAs(w, err, &failed)
	require.Equal(w, reason, failed.Reason, err)
	return failed.RetryAfter
}

// A definition whose conversion webhook is down has an unready watch cache, and that is nobody else's affair.
func TestUnreadyResourceHoldsItselfAlone(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.answerBy(inLevel("workload-high", func(rw http.ResponseWriter, r *http.Request) bool {
			if isCustom(r) {
				unready(rw, 30)
			}
			return isCustom(r)
		}))
		w.requireFence(leases)
		require.Equal(w, 30*time.Second, w.requireNoFence(custom(0), reasonThrottled))
		for range 40 {
			time.Sleep(time.Second)
			w.requireProven(w.prove(time.Now()), methodFence)
			w.requireFence(leases)
			w.p.Fence(w.Context(), custom(0))
		}
		require.Equal(w, 2, w.api.count(func(r *http.Request) bool { return r.URL.Path == "/apis/example.com/v1/broken0" }))
	})
}

// What API Priority and Fairness rejects is held for a moment for all of the level, and for nobody else.
func TestRejectionHoldsItsPriorityLevel(t *testing.T) {
	other := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	elsewhere := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	for name, tc := range map[string]struct {
		resource schema.GroupVersionResource
		answer   func(http.ResponseWriter, int)
		held     bool
	}{
		"built in":                    {leases, rejected, true},
		"from behind kube-apiserver":  {custom(0), rejected, false},
		"storage of what is built in": {leases, unready, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				level := func(r *http.Request) string {
					if strings.HasSuffix(r.URL.Path, elsewhere.Resource) {
						return "another"
					}
					return "workload-high"
				}
				refuse := false
				w.answerBy(func(rw http.ResponseWriter, r *http.Request) bool {
					return inLevel(level(r), func(rw http.ResponseWriter, r *http.Request) bool {
						if !refuse || !strings.HasSuffix(r.URL.Path, tc.resource.Resource) {
							return false
						}
						tc.answer(rw, 32)
						return true
					})(rw, r)
				})
				w.requireFence(other)
				w.requireFence(elsewhere)
				refuse = true
				w.requireNoFence(tc.resource, reasonThrottled)
				w.requireFence(elsewhere)
				if tc.held {
					require.Less(w, time.Second, w.requireNoFence(other, reasonThrottled))
					time.Sleep(levelBackoff)
				}
				w.requireFence(other)
			})
		})
	}
}

// The longer a resource is refused, the more rarely it is asked about; while nothing works, that is nobody's in particular.
func TestHoldGrowsWithTheOutageOfAResource(t *testing.T) {
	for name, tc := range map[string]struct {
		resource schema.GroupVersionResource
		alone    bool
		minutes  int
		least    time.Duration
		most     time.Duration
	}{
		"a minute":                  {custom(0), true, 1, 3 * time.Second, 4 * time.Second},
		"an hour":                   {custom(0), true, 60, maxOutageBackoff, maxOutageBackoff},
		"an hour of a built-in one": {leases, true, 60, builtInBackoff, builtInBackoff},
		"the server is broken":      {custom(0), false, 3, errorBackoff, errorBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.answerBy(func(rw http.ResponseWriter, r *http.Request) bool {
					if tc.alone && !strings.HasSuffix(r.URL.Path, tc.resource.Resource) {
						return false
					}
					http.Error(rw, "broken", http.StatusInternalServerError)
					return true
				})
				var held time.Duration
				for end := time.Now().Add(time.Duration(tc.minutes) * time.Minute); time.Now().Before(end); {
					w.p.Fence(w.Context(), custom(1))
					held = w.requireNoFence(tc.resource, reasonServerError)
					time.Sleep(max(held, time.Second))
				}
				sent := w.p.resource(tc.resource).fenceBackoff
				require.GreaterOrEqual(w, sent.f.retryAfter, tc.least)
				require.LessOrEqual(w, sent.f.retryAfter, tc.most)
				w.heal()
				time.Sleep(sent.f.retryAfter)
				w.requireFence(tc.resource)
				require.Zero(w, w.p.resource(tc.resource).fenceBackoff)
			})
		})
	}
}

// A thousand broken definitions, each asked about all the time, delay nothing of others and have a part of the budget.
func TestThousandBrokenDefinitions(t *testing.T) {
	for name, broken := range map[string]func(http.ResponseWriter, *http.Request){
		"refused at once": func(w http.ResponseWriter, _ *http.Request) { unready(w, 1) },
		"refused late": func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(9 * time.Second)
			unready(w, 1)
		},
		"never answered": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{T: t, api: &fakeAPI{rv: 100}}
				config := serve(t, w.api)
				flights := &flights{}
				config.Wrap(func(next http.RoundTripper) http.RoundTripper {
					flights.next = next
					return flights
				})
				w.p = newProver(t, Options{Config: config, QPS: 60, Burst: 80})
				w.answerBy(func(rw http.ResponseWriter, r *http.Request) bool {
					if isCustom(r) {
						broken(rw, r)
					}
					return isCustom(r)
				})
				var all sync.WaitGroup
				healthy := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
						w.requireFence(leases)
					}
				}
				// They are found broken one after another, as the monitor comes by.
				for n := range 1000 {
					all.Go(func() { w.p.Fence(w.Context(), custom(n)) })
					if n%10 == 0 {
						healthy(500 * time.Millisecond)
					}
				}
				healthy(10 * time.Second)
				all.Wait()
				before, _ := flights.sinceThen()
				stop := make(chan struct{})
				for n := range 1000 {
					all.Go(func() {
						for {
							w.p.Fence(w.Context(), custom(n))
							select {
							case <-stop:
								return
							case <-time.After(time.Second):
							}
						}
					})
				}
				healthy(5 * time.Second)
				close(stop)
				all.Wait()
				after, most := flights.sinceThen()
				require.GreaterOrEqual(t, after-before, refusedSlots, "all slots were used")
				require.LessOrEqual(t, after-before, 80/refusedShare+60/refusedShare*20)
				require.LessOrEqual(t, most, refusedSlots)
			})
		})
	}
}

// flights counts requests for custom resources, and how many of them are under way.
type flights struct {
	next http.RoundTripper

	mu              sync.Mutex
	sent, now, most int
}

func (f *flights) RoundTrip(r *http.Request) (*http.Response, error) {
	if isCustom(r) {
		f.mu.Lock()
		f.sent++
		f.now++
		f.most = max(f.most, f.now)
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			f.now--
			f.mu.Unlock()
		}()
	}
	return f.next.RoundTrip(r)
}

// sinceThen returns how many were sent in all, and the most that were under way since the last call.
func (f *flights) sinceThen() (sent, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent, most, f.most = f.sent, f.most, f.now
	return sent, most
}

// A connection that breaks costs its fence a second request, and holds nobody once there is another.
func TestBrokenConnection(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		down, once := false, false
		w.answerBy(func(http.ResponseWriter, *http.Request) bool {
			if down || once {
				once = false
				panic(http.ErrAbortHandler)
			}
			return false
		})
		once = true
		w.requireFence(leases)
		require.Len(w, w.api.requests, 2)

		down = true
		time.Sleep(2 * time.Second)
		for range 10 { // a server that is down
			w.p.Fence(w.Context(), leases)
			w.p.Fence(w.Context(), custom(0))
			time.Sleep(300 * time.Millisecond)
		}
		w.requireNoFence(leases, ReasonNoServer)
		w.requireNoFence(custom(0), ReasonNoServer)
		down = false
		w.requireFence(custom(1))
		w.requireFence(leases)
		w.requireFence(custom(0))
	})
}

// Connections that only one resource breaks are its own affair: it is held although others are answered.
func TestResourceThatBreaksConnections(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.answerBy(func(_ http.ResponseWriter, r *http.Request) bool {
			if isCustom(r) {
				panic(http.ErrAbortHandler)
			}
			return false
		})
		for range 100 {
			w.requireFence(leases)
			w.p.Fence(w.Context(), custom(0))
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(w, w.api.count(isCustom), 2+10*2, "net/http asks twice if it has used the connection before")
	})
}

// Whatever the server does to some resources, at whatever moments, proofs of others are as without it (oracle F).
func TestFaultsOfOthersChangeNoProof(t *testing.T) {
	checks := flag.Lookup("rapid.checks").Value.String()
	require.NoError(t, flag.Set("rapid.checks", "300"))
	defer flag.Set("rapid.checks", checks)
	rapid.Check(t, func(rt *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, 7), 1, 8).Draw(rt, "faults")
		pauses := rapid.SliceOfN(rapid.IntRange(1, 3000), 2, 8).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			w := &world{T: t, api: &fakeAPI{rv: 100, bookmarkAt: 1700 * time.Millisecond}}
			w.api.write("ns/a", "uid", false)
			w.view = newView(w.api)
			w.view.sync(w.api.bump(0))
			w.p = newProver(t, Options{Config: serve(t, w.api), QPS: 60, Burst: 80})
			track(w.p, leases, w.view)
			w.answerBy(inLevel("workload-high", func(rw http.ResponseWriter, r *http.Request) bool {
				if !isCustom(r) {
					return false
				}
				n, _ := strconv.Atoi(r.URL.Path[len("/apis/example.com/v1/broken"):])
				switch kinds[n%len(kinds)] {
				case 0:
					unready(rw, 30)
				case 1:
					rejected(rw, 32)
				case 2:
					http.Error(rw, "bad", http.StatusInternalServerError)
				case 3:
					<-r.Context().Done()
				case 4:
					panic(http.ErrAbortHandler)
				case 5:
					rw.Header().Set("Retry-After", "86400")
					http.Error(rw, "down", http.StatusServiceUnavailable)
				case 6:
					fmt.Fprint(rw, strings.Repeat("\x1b[31m\n", 100))
				default:
					http.NotFound(rw, r)
				}
				return true
			}))
			var others sync.WaitGroup
			for _, pause := range pauses {
				for n := range kinds {
					others.Go(func() { w.p.Fence(w.Context(), custom(n)) })
				}
				time.Sleep(time.Duration(pause) * time.Millisecond)
				begin := time.Now()
				w.requireProven(w.prove(begin), methodFence)
				require.Equal(w, begin, time.Now())
			}
			others.Wait()
		})
	})
}
