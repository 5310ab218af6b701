// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

func leaseAt(rv string, second int) *coordv1.Lease {
	l := &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
	if second != 0 {
		l.Spec.RenewTime = new(metav1.NewMicroTime(time.Unix(int64(second), 0)))
	}
	return l
}

func TestHeartbeats(t *testing.T) {
	const none = 0
	for title, tc := range map[string]struct {
		saved, lease *coordv1.Lease
		// newer is for a lease of whatever time, renewed for one read after the saved one was seen, and has for
		// the saved one in a cache.
		newer, renewed, has bool
	}{
		"first":                             {nil, leaseAt("2", 10), true, true, false},
		"none":                              {leaseAt("1", 10), nil, false, false, true},
		"the same":                          {leaseAt("1", 10), leaseAt("1", 10), false, false, true},
		"edited":                            {leaseAt("1", 10), leaseAt("2", 10), false, false, true},
		"renewed":                           {leaseAt("1", 10), leaseAt("2", 20), true, true, false},
		"never renewed":                     {leaseAt("1", 10), leaseAt("2", none), false, false, true},
		"renewed for the first time":        {leaseAt("1", none), leaseAt("2", 10), true, true, false},
		"set back":                          {leaseAt("9", 1000), leaseAt("10", 10), true, true, false},
		"older":                             {leaseAt("10", 20), leaseAt("9", 10), false, false, true},
		"older, when the clock was ahead":   {leaseAt("10", 20), leaseAt("9", 1000), false, true, false},
		"after a rewind":                    {leaseAt("100", 20), leaseAt("50", 30), false, true, false},
		"restored":                          {leaseAt("100", 20), leaseAt("50", 10), false, false, true},
		"no order, later":                   {leaseAt("x", 10), leaseAt("a", 20), true, true, false},
		"no order, earlier":                 {leaseAt("x", 20), leaseAt("a", 10), false, true, true},
		"longer versions are not less":      {leaseAt("99999999999999999999", 10), leaseAt("100000000000000000000", 5), true, true, false},
		"set back by less than a heartbeat": {leaseAt("1", 20), leaseAt("2", 19), true, true, false},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, tc.newer, newer(tc.saved, tc.lease), "newer")
			require.Equal(t, tc.renewed, renewed(tc.saved, tc.lease), "renewed")
			require.Equal(t, tc.has, has(tc.saved, tc.lease), "has")
		})
	}
}

// A node whose clock is set, back or ahead, lives, whatever the state of the cache (kubernetes/kubernetes#113081),
// and the breaker is closed in the end.
func TestClockSet(t *testing.T) {
	unknown := &freshness.Proof{Outcome: freshness.Unknown}
	for title, fault := range map[string]func(s *server, on bool){
		"healthy":                           func(*server, bool) {},
		"leases held":                       func(s *server, on bool) { s.freeze(on) },
		"nothing proven":                    func(s *server, on bool) { s.proof = map[bool]*freshness.Proof{true: unknown}[on] },
		"leases held, nothing ever reached": func(s *server, on bool) { s.freeze(on); s.rewound = true },
		"no order of versions":              func(s *server, on bool) { s.opaque, s.proof = true, unknown },
	} {
		for _, by := range []time.Duration{-5 * time.Minute, -10 * time.Minute, -15 * time.Second, time.Hour} {
			t.Run(title+" "+by.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t)
					s.skews = map[int]time.Duration{}
					l := run(t, s, 4, map[int]time.Duration{3: 115 * time.Second}, 8*time.Minute, func(now time.Duration) {
						switch now {
						case 62 * time.Second:
							s.skews[1] = by
						case 90 * time.Second:
							fault(s, true)
						case 95 * time.Second:
							s.skews[2] = by
						case 200 * time.Second:
							fault(s, false)
						case 260 * time.Second:
							clear(s.skews)
						}
					})
					for i := range 3 {
						require.True(t, l.nodes[name(i)].markedAt.IsZero(), name(i))
					}
					began := time.Now().Add(-8 * time.Minute)
					marked := l.nodes[name(3)].markedAt.Sub(began)
					require.InDelta(t, 115*time.Second+grace, marked, float64(10*time.Second), "the dead one")
					require.Zero(t, l.b.openedAt)
				})
			})
		}
	}
}

// A node whose clock is set back while resource versions go backward, as etcd is restored, looks like one whose lease is from before that: it is
// marked although it lives, unless its versions outgrow the old ones in time. With either alone it is not.
func TestClockSetBackWhileEtcdIsRestored(t *testing.T) {
	for title, tc := range map[string]struct {
		back     time.Duration
		restored bool
		marked   bool
	}{
		"both":              {10 * time.Minute, true, true},
		"the clock alone":   {10 * time.Minute, false, false},
		"the restore alone": {0, true, false},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				s.rv, s.skews = 100_000, map[int]time.Duration{}
				l := run(t, s, 2, nil, 4*time.Minute, func(now time.Duration) {
					if now == time.Minute {
						s.skews[0] = -tc.back
						if tc.restored {
							s.rv = 1000
						}
					}
				})
				require.Equal(t, tc.marked, !l.nodes[name(0)].markedAt.IsZero())
				require.True(t, l.nodes[name(1)].markedAt.IsZero(), "one whose clock is right")
			})
		})
	}
}

// What is older is no heartbeat: a dead node is marked in time although the cache shows other renewTimes of it, from
// before, again and again. Its clock was ahead and had been corrected, so that the old ones are the later ones, too.
func TestOldLeasesAreNoHeartbeats(t *testing.T) {
	for title, unproven := range map[string]bool{"proven at times": false, "never proven": true} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				s.skews = map[int]time.Duration{0: time.Hour}
				past := map[string]*coordv1.Lease{}
				// The informer is moved from an apiserver to another that lags, and back, every 15 s.
				l := run(t, s, 3, map[int]time.Duration{0: 60 * time.Second}, 4*time.Minute, func(now time.Duration) {
					s.mu.Lock()
					defer s.mu.Unlock()
					switch {
					case now == 40*time.Second:
						past = maps.Clone(s.live)
						s.skews[0] = 0
					case now > 60*time.Second && now%(30*time.Second) == 0:
						if unproven {
							s.proof = &freshness.Proof{Outcome: freshness.Unknown}
						}
						s.frozen = true
						maps.Copy(s.cached, past)
					case now > 60*time.Second && now%(15*time.Second) == 0:
						s.frozen = false
						s.sync()
					}
				})
				began := time.Now().Add(-4 * time.Minute)
				require.False(t, l.nodes[name(0)].markedAt.IsZero())
				require.LessOrEqual(t, l.nodes[name(0)].markedAt.Sub(began), 60*time.Second+grace+2*every)
				require.True(t, l.nodes[name(1)].markedAt.IsZero())
			})
		})
	}
}

// A lease that is deleted, or made again, of a dead node is no heartbeat for longer than one grace period; of a
// living one it is.
func TestLeaseMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		l := run(t, s, 3, map[int]time.Duration{0: 60 * time.Second, 1: 60 * time.Second}, 4*time.Minute, func(now time.Duration) {
			if now != 70*time.Second {
				return
			}
			for i := range 2 {
				s.mu.Lock()
				delete(s.live, name(i))
				delete(s.cached, name(i))
				s.mu.Unlock()
			}
			s.renew(name(1), -time.Hour)
		})
		began := time.Now().Add(-4 * time.Minute)
		require.LessOrEqual(t, l.nodes[name(0)].markedAt.Sub(began), 60*time.Second+grace+2*every)
		require.LessOrEqual(t, l.nodes[name(1)].markedAt.Sub(began), 70*time.Second+grace+2*every)
		require.True(t, l.nodes[name(2)].markedAt.IsZero())
	})
}

// After etcd was restored the lower version is the later one. Living nodes go on living, also while the cache still
// shows what was before; the dead are marked in time.
func TestRestoredLeases(t *testing.T) {
	for title, held := range map[string]bool{"seen at once": false, "cache from before": true} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				var backup map[string]*coordv1.Lease
				l := run(t, s, 4, map[int]time.Duration{0: 95 * time.Second, 1: 150 * time.Second}, 6*time.Minute, func(now time.Duration) {
					s.mu.Lock()
					defer s.mu.Unlock()
					switch now {
					case 60 * time.Second:
						backup = maps.Clone(s.live)
					case 120 * time.Second:
						s.frozen = held
						rvs := []int{}
						for _, lease := range backup {
							rv, _ := strconv.Atoi(lease.ResourceVersion)
							rvs = append(rvs, rv)
						}
						s.live, s.rv = backup, slices.Max(rvs)
						s.sync()
					case 200 * time.Second:
						s.frozen = false
						s.sync()
					}
				})
				began := time.Now().Add(-6 * time.Minute)
				for i, dies := range []time.Duration{95 * time.Second, 150 * time.Second} {
					require.False(t, l.nodes[name(i)].markedAt.IsZero(), name(i))
					require.LessOrEqual(t, l.nodes[name(i)].markedAt.Sub(began), dies+grace+2*every, name(i))
				}
				require.True(t, l.nodes[name(2)].markedAt.IsZero())
				require.True(t, l.nodes[name(3)].markedAt.IsZero())
				require.Equal(t, held, l.opened)
				require.Zero(t, l.b.openedAt)
			})
		})
	}
}
