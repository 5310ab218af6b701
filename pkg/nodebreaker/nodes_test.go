// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// Nothing but the dead is marked, each within grace and two passes of its last heartbeat, whatever the
// state of the cache, and the live reads are as few as the state allows.
func TestNodesUnderFaults(t *testing.T) {
	forbidden := apierrors.NewForbidden(leasesResource, "", errors.New("no rule"))
	busy := apierrors.NewTooManyRequests("busy", 7)
	from, to := 60*time.Second, 180*time.Second
	for title, tc := range map[string]struct {
		nodes            int
		deaths           map[int]time.Duration
		fault, heal      func(s *server)
		maxReadsAMinute  int
		wantTrips        bool
		wantHeld         bool
		wantReport       bool
		markedAfterFault bool // the dead are marked only after the fault has been healed
	}{
		"healthy":  {nodes: 30},
		"some die": {nodes: 30, deaths: map[int]time.Duration{3: 61 * time.Second, 4: 100 * time.Second}},
		"all die":  {nodes: 30, deaths: all(30, 65*time.Second)},
		"leases held": {nodes: 30, maxReadsAMinute: 7, wantTrips: true,
			fault: func(s *server) { s.freeze(true) }, heal: func(s *server) { s.freeze(false) }},
		"leases held, 1,000 nodes": {nodes: 1000, maxReadsAMinute: 7, wantTrips: true,
			fault: func(s *server) { s.freeze(true) }, heal: func(s *server) { s.freeze(false) }},
		"leases held and some die": {nodes: 30, maxReadsAMinute: 14, wantTrips: true,
			deaths: map[int]time.Duration{3: 61 * time.Second, 4: 65 * time.Second, 5: 90 * time.Second, 6: 150 * time.Second},
			fault:  func(s *server) { s.freeze(true) }, heal: func(s *server) { s.freeze(false) }},
		"nothing can be proven, all well otherwise": {nodes: 30, maxReadsAMinute: 14, deaths: map[int]time.Duration{3: 61 * time.Second},
			fault: func(s *server) { s.proof = &freshness.Proof{Outcome: freshness.Unknown} }},
		"leases held, lists refused": {nodes: 30, maxReadsAMinute: 2, wantTrips: true, wantHeld: true, wantReport: true, markedAfterFault: true,
			deaths: map[int]time.Duration{3: 65 * time.Second},
			fault:  func(s *server) { s.freeze(true); s.listErr = forbidden }, heal: func(s *server) { s.freeze(false) }},
		"leases held, server busy": {nodes: 30, maxReadsAMinute: 10, wantReport: true, markedAfterFault: true,
			deaths: map[int]time.Duration{3: 65 * time.Second},
			fault:  func(s *server) { s.freeze(true); s.listErr = busy }, heal: func(s *server) { s.freeze(false); s.listErr = nil }},
		"leases held, server busy later": {nodes: 30, maxReadsAMinute: 14, wantTrips: true, wantHeld: true, wantReport: true, markedAfterFault: true,
			deaths: map[int]time.Duration{3: 150 * time.Second},
			fault: func(s *server) {
				s.freeze(true)
				time.AfterFunc(30*time.Second, func() { s.mu.Lock(); s.listErr = busy; s.mu.Unlock() })
			}, heal: func(s *server) { s.freeze(false); s.listErr = nil }},
		"etcd restored": {nodes: 30, maxReadsAMinute: 14, wantTrips: true,
			fault: func(s *server) { s.freeze(true); s.rewound = true }, heal: func(s *server) { s.freeze(false) }},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				reads := map[int]int{}
				l := run(t, s, tc.nodes, tc.deaths, 6*time.Minute, func(now time.Duration) {
					switch {
					case now == from && tc.fault != nil:
						tc.fault(s)
					case now == to && tc.heal != nil:
						tc.heal(s)
					}
					reads[int(now/time.Minute)] = s.reads
				})
				began := time.Now().Add(-6 * time.Minute)
				if !l.b.openedAt.IsZero() {
					t.Error("the breaker is still open")
				}
				if s.lists+s.gets > 0 && tc.maxReadsAMinute == 0 {
					t.Errorf("%d lists and %d gets, though all could be proven", s.lists, s.gets)
				}
				for minute := 1; minute < 6; minute++ {
					if n := reads[minute] - reads[minute-1]; n > tc.maxReadsAMinute {
						t.Errorf("%d live reads in minute %d, at most %d wanted", n, minute, tc.maxReadsAMinute)
					}
				}
				require.Equal(t, tc.wantHeld, l.held > 0, "%d passes held", l.held)
				require.Equal(t, tc.wantReport, len(s.reports) > 0, "reports: %v", s.reports)
				for i := range tc.nodes {
					w := l.nodes[name(i)]
					death, dies := tc.deaths[i]
					if !dies {
						require.True(t, w.markedAt.IsZero(), "%s lives and was marked at %s", name(i), w.markedAt.Sub(began))
						continue
					}
					require.False(t, w.markedAt.IsZero(), "%s died at %s and was not marked", name(i), death)
					after := death
					if tc.markedAfterFault {
						after = max(death, to)
					}
					marked := w.markedAt.Sub(began)
					require.LessOrEqual(t, marked, after+grace+2*every, "%s died at %s", name(i), death)
					require.GreaterOrEqual(t, marked, death-10*time.Second+grace, "%s died at %s", name(i), death)
				}
				require.Equal(t, tc.wantTrips, l.opened)
			})
		})
	}
}

func all(n int, death time.Duration) map[int]time.Duration {
	out := map[int]time.Duration{}
	for i := range n {
		out[i] = death
	}
	return out
}

// With lists refused, a breaker that a lease has opened which is gone since, from a server that was
// rewound since, still closes: once the cache is proven.
func TestBreakerClosesByProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.listErr = apierrors.NewForbidden(leasesResource, "", nil)
		saved := s.renew("a", 0)
		s.freeze(true)
		time.Sleep(grace + every)
		s.renew("a", 0)
		b := s.breaker()
		b.BeginPass(t.Context())
		dead, lease, _ := b.ConfirmDead(t.Context(), "a", saved, time.Second)
		require.False(t, dead)
		require.NotNil(t, lease)
		time.Sleep(every)
		require.True(t, b.BeginPass(t.Context()))
		require.True(t, b.held)
		delete(s.live, "a")
		delete(s.cached, "a")
		s.rewound = true
		s.freeze(false)
		b.BeginPass(t.Context())
		require.False(t, b.held)
		require.Zero(t, b.openedAt)
	})
}

// What was inconclusive twice for half a minute was not so for a minute.
func TestReportIsOfOneMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.proof = &freshness.Proof{Outcome: freshness.Unknown}
		s.listErr = errors.New("no server")
		saved := s.renew("a", 0)
		b := s.breaker()
		passes := func(n int, asking bool) {
			for range n {
				b.BeginPass(t.Context())
				if asking {
					b.ConfirmDead(t.Context(), "a", saved, time.Second)
				}
				time.Sleep(every)
			}
		}
		for range 3 {
			passes(8, true)
			passes(2, false)
		}
		require.Empty(t, s.reports)
		require.Empty(t, b.Waits())
		passes(20, true)
		require.Len(t, s.reports, 1)
		waits := b.Waits()
		require.Len(t, waits, 1)
		require.Equal(t, "silent nodes", waits[0].Object)
		require.InDelta(t, 20*every, time.Since(waits[0].Since), float64(every))
	})
}

// A cache that has what the list had when the breaker opened, but still lags, does not close it.
func TestBreakerStaysOpenWhileTheCacheLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		saved := s.renew("a", 0)
		s.freeze(true)
		time.Sleep(grace + every)
		first := s.renew("a", 0)
		b := s.breaker()
		b.BeginPass(t.Context())
		b.ConfirmDead(t.Context(), "a", saved, time.Second)
		for range 4 {
			time.Sleep(every)
			s.renew("a", 0)
			require.True(t, b.BeginPass(t.Context()))
			s.cached["a"] = first
		}
		require.NotZero(t, b.openedAt)
		s.freeze(false)
		b.BeginPass(t.Context())
		require.Zero(t, b.openedAt)
	})
}

// Nor does one that lags for as long as from one list to the next, and its leases are listed no more often for that.
func TestBreakerStaysOpenWhateverTheLag(t *testing.T) {
	const held, lags, last, ends = 60 * time.Second, 100 * time.Second, 127 * time.Second, 240 * time.Second
	for _, lag := range []time.Duration{6 * time.Second, 11 * time.Second, 16 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				var had []map[string]*coordv1.Lease
				reads := map[time.Duration]int{}
				began, b := time.Now(), s.breaker()
				l := runOn(t, s, b, 30, map[int]time.Duration{3: last + time.Second}, 5*time.Minute, func(now time.Duration) {
					s.mu.Lock()
					defer s.mu.Unlock()
					had = append(had, maps.Clone(s.live))
					reads[now] = s.reads
					switch {
					case now == held:
						s.frozen = true
					case now > lags && now < ends:
						s.cached = had[(now-lag)/time.Second]
						require.NotZero(t, b.openedAt, "after %s", now)
					case now == ends:
						s.frozen = false
						s.sync()
					}
				})
				require.Zero(t, b.openedAt)
				require.LessOrEqual(t, reads[ends]-reads[ends-2*time.Minute], 14)
				marked := l.nodes[name(3)].markedAt.Sub(began)
				require.Greater(t, marked, last+grace)
				require.LessOrEqual(t, marked, last+grace+2*every)
			})
		})
	}
}

// A dead node that could not be judged, as the last list was of just before its grace period ran out, is judged in the next
// pass, also if a list takes longer then than its workers wait for one.
func TestWhatWasNotVerifiedIsInTheNextPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		saved := s.renew("a", 0)
		s.freeze(true)
		time.Sleep(grace)
		s.renew("b", 0)
		b := s.breaker()
		b.BeginPass(t.Context())
		_, by, err := b.present(t.Context(), "b", saved, time.Now())
		require.NoError(t, err)
		require.Equal(t, livereads.ByList, by)
		require.NotZero(t, b.openedAt)
		time.Sleep(pageInterval / 2)
		ranOut := time.Now().Add(-pageInterval / 4)
		dead, _, _ := b.ConfirmDead(t.Context(), "a", saved, time.Since(ranOut))
		require.False(t, dead, "the next list is not due yet")
		s.latency = 2*refreshWait - time.Millisecond
		time.Sleep(every)
		b.BeginPass(t.Context())
		dead, _, _ = b.ConfirmDead(t.Context(), "a", saved, time.Since(ranOut))
		require.True(t, dead)
	})
}
