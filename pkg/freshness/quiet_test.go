// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// duringList does something while the proof's list is read: after the server has taken
// its state, before the answer arrives.
func (w *world) duringList(f func()) {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	done := false
	w.api.answered = func(r *http.Request) {
		if isList(r) && !done {
			done = true
			f()
		}
	}
}

func TestQuietByList(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(w *world) // the store has ten objects, at 110; the server is 50 on
		during func(w *world)
		want   Proof
	}{
		{
			name: "nothing happened",
			want: Proof{Outcome: Proven, Method: methodList, ResourceVersion: "110"},
		}, {
			name:   "an object is missing",
			before: func(w *world) { w.api.write("ns/new", "n", false) },
			want:   Proof{Outcome: Stale, Method: methodList, Events: 1, RVs: 51, ResourceVersion: "161"},
		}, {
			name:   "an object was changed",
			before: func(w *world) { w.api.write("ns/a", "uid", false) },
			want:   Proof{Outcome: Stale, Method: methodList, Events: 1, RVs: 51, ResourceVersion: "161"},
		}, {
			name:   "an object was deleted",
			before: func(w *world) { w.api.write("ns/a", "uid", true) },
			want:   Proof{Outcome: Stale, Method: methodList, Events: 1, RVs: 51, ResourceVersion: "161"},
		}, {
			name: "an object was created again",
			before: func(w *world) {
				w.api.write("ns/a", "uid", true)
				w.api.write("ns/a", "other", false)
			},
			want: Proof{Outcome: Stale, Method: methodList, Events: 1, RVs: 52, ResourceVersion: "162"},
		}, {
			name: "three kinds at once",
			before: func(w *world) {
				w.api.write("ns/a", "uid", true)
				w.api.write("ns/b", "uid", false)
				w.api.write("ns/z", "uid", false)
			},
			want: Proof{Outcome: Stale, Method: methodList, Events: 3, RVs: 53, ResourceVersion: "162"},
		}, {
			name: "the store catches up after the comparison",
			before: func(w *world) {
				w.api.write("ns/a", "uid", false) // 161
				w.api.bump(10)
			},
			during: func(w *world) { time.AfterFunc(100*time.Millisecond, func() { w.view.follow(161) }) },
			want:   Proof{Outcome: Proven, Method: methodList, ResourceVersion: "161"},
		}, {
			name: "the store is past the list: changed, deleted and made after it",
			during: func(w *world) {
				w.api.write("ns/a", "uid", false)
				w.api.write("ns/b", "uid", true)
				w.api.write("ns/z", "uid", false)
				w.view.sync(w.api.bump(0))
			},
			want: Proof{Outcome: Proven, Method: methodList, ResourceVersion: "160"},
		}, {
			name: "the server is past the list, the store is not",
			during: func(w *world) {
				w.api.write("ns/a", "uid", false)
				w.api.write("ns/b", "uid", true)
			},
			want: Proof{Outcome: Proven, Method: methodList, ResourceVersion: "110"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.api.bump(50)
				if tc.before != nil {
					tc.before(w)
				}
				if tc.during != nil {
					w.duringList(func() { tc.during(w) })
				}
				asOf := time.Now()
				proof := w.prove(asOf)
				require.Equal(w, tc.want.Outcome, proof.Outcome, proof.String())
				require.Equal(w, tc.want.Method, proof.Method)
				require.Equal(w, tc.want.ResourceVersion, proof.ResourceVersion)
				require.Equal(w, tc.want.Ahead, proof.Ahead)
				require.Equal(w, tc.want.Events, proof.Events)
				require.Equal(w, tc.want.RVs, proof.RVs)
				require.False(w, proof.At.Before(asOf))
				if tc.want.Outcome == Stale {
					require.Equal(w, 500*time.Millisecond, proof.AtLeast)
				}
			})
		})
	}
}

func TestObjectsPastTheStoreRV(t *testing.T) {
	// A store that shows an object before its RV says so: sound all the same.
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		w.duringList(func() {
			rv := w.api.write("ns/a", "uid", false)
			w.view.mu.Lock()
			w.view.objects["ns/a"] = object{"uid", w.api.text(rv)}
			w.view.objects["ns/zz"] = object{"uid", w.api.text(rv + 1)}
			w.view.mu.Unlock()
		})
		w.requireProven(w.prove(time.Now()), methodList)
	})
}

func TestStaleForLonger(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.write("ns/a", "uid", false) // 111
		_, err := w.p.Fence(w.Context(), leases)
		require.NoError(w, err)
		time.Sleep(time.Minute)
		w.api.write("ns/b", "uid", false) // 112
		proof := w.prove(time.Now())
		require.Equal(w, Stale, proof.Outcome)
		require.Equal(w, 2, proof.Events)
		require.Equal(w, time.Minute+500*time.Millisecond, proof.AtLeast)
	})
}

// What a cache was shown to lack is known until it has passed it, whatever the server answers meanwhile.
func TestStaleBeforeTheServerRefuses(t *testing.T) {
	for name, heal := range map[string]func(w *world){
		"until the cache has passed it":  func(w *world) { w.view.sync(111) },
		"until another cache is tracked": func(w *world) { track(w.p, leases, w.view) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.api.write("ns/a", "uid", false) // 111
				require.Equal(w, Stale, w.prove(time.Now()).Outcome)
				shown := time.Now()
				w.fail(func(*http.Request) bool { return true }, 429, metav1.StatusReasonTooManyRequests, nil)
				time.Sleep(time.Minute)
				proof := w.prove(time.Now())
				w.requireUnknown(proof, reasonThrottled)
				require.Equal(w, shown, proof.StaleAt)
				proof, err := w.p.ProveAtOnce(w.Context(), leases, time.Now())
				require.NoError(w, err)
				require.Equal(w, shown, proof.StaleAt)
				heal(w)
				require.Zero(w, w.prove(time.Now()).StaleAt)
			})
		})
	}
}

func TestManyPages(t *testing.T) {
	for name, missing := range map[string]int{"same": 0, "a few more on the server": 3, "far more on the server": 5000} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{SmallCollection: 2000}, func(w *world) {
				for i := range 1200 {
					w.api.write(fmt.Sprintf("ns/%05d", i), "uid", false)
				}
				w.view.sync(w.api.bump(0))
				for i := range missing {
					w.api.write(fmt.Sprintf("ns/%05d", 1200+i), "uid", false)
				}
				w.api.bump(10)
				proof := w.prove(time.Now())
				pages := w.api.count(isList)
				switch {
				case missing == 0:
					w.requireProven(proof, methodList)
					require.Equal(w, 3, pages)
				case missing < 1000:
					require.Equal(w, Stale, proof.Outcome)
					require.Equal(w, missing, proof.Events)
				default:
					require.Equal(w, Stale, proof.Outcome)
					require.Greater(w, proof.Events, 1000)
					require.Equal(w, 6, pages, "it does not read on when the answer is clear")
				}
			})
		})
	}
}

func TestPagesOfDifferentRVsProveNothing(t *testing.T) {
	inWorld(t, Options{SmallCollection: 2000}, func(w *world) {
		for i := range 700 {
			w.api.write(fmt.Sprintf("ns/%05d", i), "uid", false)
		}
		w.view.sync(w.api.bump(0))
		w.api.bump(10)
		n := 0
		w.api.alwaysRV = func() int { n++; return w.api.bump(0) + n }
		w.requireUnknown(w.prove(time.Now()), reasonServerError)
	})
}

func TestQuietByWatch(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(w *world)
		during func(w *world) // the watch
		want   Proof
		took   time.Duration
	}{
		{
			name: "nothing happened",
			want: Proof{Outcome: Proven, Method: methodWatch, ResourceVersion: "110"},
			took: 1950 * time.Millisecond,
		}, {
			name: "events are missing",
			before: func(w *world) {
				w.api.write("ns/a", "uid", false)
				w.api.write("ns/b", "uid", true)
			},
			want: Proof{Outcome: Stale, Method: methodWatch, Events: 2, RVs: 52, ResourceVersion: "161"},
			took: 500 * time.Millisecond,
		}, {
			name:   "the last event is the fence itself",
			before: func(w *world) { w.api.write("ns/a", "uid", false) },
			want:   Proof{Outcome: Stale, Method: methodWatch, Events: 1, RVs: 51, ResourceVersion: "161"},
			took:   500 * time.Millisecond,
		}, {
			name:   "an event past the fence ends it early",
			during: func(w *world) { w.api.write("ns/a", "uid", false) },
			want:   Proof{Outcome: Proven, Method: methodWatch, ResourceVersion: "110", Ahead: "161"},
			took:   350 * time.Millisecond,
		}, {
			name: "an event past the fence, and one before it that is missing",
			before: func(w *world) {
				w.api.write("ns/b", "uid", false)
				w.api.bump(1)
			},
			during: func(w *world) { w.api.write("ns/a", "uid", false) },
			want:   Proof{Outcome: Stale, Method: methodWatch, Events: 1, RVs: 52, ResourceVersion: "161"},
			took:   600 * time.Millisecond,
		}, {
			name: "the store takes the event meanwhile, the bookmark does the rest",
			before: func(w *world) {
				w.api.write("ns/a", "uid", false)
				w.api.bump(10)
			},
			during: func(w *world) { w.view.follow(161) },
			want:   Proof{Outcome: Proven, Method: methodWatch, ResourceVersion: "161"},
			took:   1950 * time.Millisecond,
		}, {
			name:   "the store gets a bookmark of its own",
			during: func(w *world) { w.view.sync(160) },
			want:   Proof{Outcome: Proven, Method: methodWait, ResourceVersion: "160"},
			took:   350 * time.Millisecond,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, Options{SmallCollection: -1}, func(w *world) {
				w.api.bump(50)
				if tc.before != nil {
					tc.before(w)
				}
				begin := time.Now()
				if tc.during != nil {
					time.AfterFunc(350*time.Millisecond, func() { tc.during(w) })
				}
				proof := w.prove(begin)
				require.Equal(w, tc.want.Outcome, proof.Outcome, proof.String())
				require.Equal(w, tc.want.Method, proof.Method)
				require.Equal(w, tc.want.ResourceVersion, proof.ResourceVersion)
				require.Equal(w, tc.want.Events, proof.Events)
				require.Equal(w, tc.want.RVs, proof.RVs)
				require.InDelta(w, tc.took.Seconds(), time.Since(begin).Seconds(), 0.003)
				require.Equal(w, 1, w.api.count(isFence))
				require.Equal(w, 1, w.api.count(isWatch))
			})
		})
	}
}

func TestQuietTwiceDoesNotWaitAgain(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		w.requireProven(w.prove(time.Now()), methodList)
		time.Sleep(time.Minute)
		w.api.bump(50)
		begin := time.Now()
		w.requireProven(w.prove(begin), methodList)
		require.Equal(w, begin, time.Now(), "the store stands where it was proven quiet")
	})
}

func TestQuietProofCoversLaterFences(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		w.requireProven(w.prove(time.Now()), methodList)
		time.Sleep(time.Second)
		w.takeFence() // At 160, as the list.
		proof := w.prove(time.Now())
		w.requireProven(proof, methodEarlier)
		require.Equal(w, "110", proof.ResourceVersion, "a handler at 110 is covered too")
	})
}

func TestProofIsVoidWhenTheCacheGoesBack(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		asOf := time.Now()
		w.requireProven(w.prove(asOf), methodFence)
		w.view.sync(105) // relisted from an apiserver that lags
		proof := w.prove(asOf)
		require.Equal(w, Stale, proof.Outcome, proof.String())
		require.Equal(w, 5, proof.Events)
		w.view.sync(110)
		w.requireProven(w.prove(asOf), methodEarlier)
	})
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		asOf := time.Now()
		w.requireProven(w.prove(asOf), methodList)
		w.view.sync(105)
		require.Equal(w, Stale, w.prove(asOf).Outcome)
		w.view.sync(110)
		w.requireProven(w.prove(asOf), methodList)
	})
}

// Who decides again and again on a cache in which nothing happens waits for one request each time.
func TestQuietAgainIsOneRequest(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		require.True(w, w.prove(time.Now()).Fresh())
		for range 5 {
			time.Sleep(3 * time.Second)
			w.api.bump(10)
			all := func(*http.Request) bool { return true }
			before, began := w.api.count(all), time.Now()
			proof := w.prove(began)
			require.Equal(w, methodList, proof.Method, proof.String())
			require.Equal(w, before+1, w.api.count(all))
			require.Less(w, time.Since(began), 50*time.Millisecond)
		}
	})
}

// The first time, too, for a cache with few objects: it is not given time to pass a fence that it cannot pass.
func TestFewAreProvenSoon(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.api.bump(50)
		all := func(*http.Request) bool { return true }
		before, began := w.api.count(all), time.Now()
		proof, err := w.p.ProveSoon(w.Context(), leases, began)
		require.NoError(w, err)
		require.Equal(w, methodList, proof.Method, proof.String())
		require.Equal(w, before+1, w.api.count(all))
		require.Less(w, time.Since(began), 50*time.Millisecond)
		proof, err = w.p.ProveSoon(w.Context(), leases, began)
		require.NoError(w, err)
		require.True(w, proof.Fresh())
		require.Equal(w, before+1, w.api.count(all), "what is known costs no request")
	})
}

// A large cache is not counted again for each who asks.
func TestLargeCacheIsCountedOnceASecond(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		t, p, view := w.T, w.p, &countedView{objects: few + 1}
		track(p, leases, view)
		for range 100 {
			require.False(t, p.Few(leases))
		}
		require.Equal(t, 1, view.counts)
		view.objects = few
		require.False(t, p.Few(leases))
		time.Sleep(countFor)
		require.True(t, p.Few(leases))
		view.objects = few + 1
		require.False(t, p.Few(leases), "it grows")
		for objects, long := range map[int]time.Duration{10 * few: 10 * countFor, 1000 * few: countAgain} {
			time.Sleep(countAgain)
			view.objects, view.counts = objects, 0
			require.False(t, p.Few(leases))
			time.Sleep(long - time.Millisecond)
			require.False(t, p.Few(leases))
			require.Equal(t, 1, view.counts, "it does not shrink that soon")
			time.Sleep(time.Millisecond)
			require.False(t, p.Few(leases))
			require.Equal(t, 2, view.counts)
		}
		track(p, leases, &countedView{})
		require.True(t, p.Few(leases), "another cache")
	})
}

// countedView counts how often it is counted.
type countedView struct {
	cacheView
	objects, counts int
}

func (v *countedView) Len() int {
	v.counts++
	return v.objects
}
