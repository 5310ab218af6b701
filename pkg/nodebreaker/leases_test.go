// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// A metadata edit of a dead node's lease is no heartbeat (gap 3), whatever shows it.
func TestMetadataEditIsNoHeartbeat(t *testing.T) {
	for title, unknown := range map[string]bool{"proven": false, "live": true} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				if unknown {
					s.proof = &freshness.Proof{Outcome: freshness.Unknown}
				}
				edit := func(now time.Duration) {
					if now < 20*time.Second {
						return
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					s.rv++
					edited := s.live[name(0)].DeepCopy()
					edited.ResourceVersion = strconv.Itoa(s.rv)
					s.live[name(0)] = edited
					s.sync()
				}
				l := run(t, s, 2, map[int]time.Duration{0: 15 * time.Second}, 2*time.Minute, edit)
				require.False(t, l.nodes[name(0)].markedAt.IsZero())
				require.True(t, l.nodes[name(1)].markedAt.IsZero())
			})
		})
	}
}

// With lists refused, each of many dead nodes is read once, at the rate of the budget.
func TestDeadNodesAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.proof = &freshness.Proof{Outcome: freshness.Unknown}
		s.listErr = apierrors.NewForbidden(leasesResource, "", nil)
		l := run(t, s, 30, all(30, 15*time.Second), 6*time.Minute, func(time.Duration) {})
		for i := range 30 {
			require.False(t, l.nodes[name(i)].markedAt.IsZero(), name(i))
		}
		require.LessOrEqual(t, s.gets, 2*30, "once when it fell silent, once when its grace ran out")
	})
}

// A node of which no lease was ever seen is dead if the server has none either.
func TestNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, proof := range []*freshness.Proof{nil, {Outcome: freshness.Unknown}} {
			s := newServer(t)
			s.proof = proof
			b := s.breaker()
			require.True(t, b.BeginPass(t.Context()))
			dead, lease, _ := b.ConfirmDead(t.Context(), "none", nil, time.Second)
			require.True(t, dead)
			require.Nil(t, lease)
			s.freeze(true)
			s.renew("none", 0)
			time.Sleep(every)
			b.BeginPass(t.Context())
			dead, lease, _ = b.ConfirmDead(t.Context(), "none", nil, time.Second)
			require.False(t, dead)
			require.NotNil(t, lease, "it has one now")
		}
	})
}

// A list is good only for those whose grace had run out when it was begun.
func TestOlderListConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.proof = &freshness.Proof{Outcome: freshness.Unknown}
		saved := s.renew("a", 0)
		b := s.breaker()
		b.BeginPass(t.Context())
		dead, _, _ := b.ConfirmDead(t.Context(), "a", saved, 0)
		require.True(t, dead)
		s.renew("b", 0)
		time.Sleep(time.Second)
		dead, lease, _ := b.ConfirmDead(t.Context(), "a", saved, time.Millisecond)
		require.False(t, dead, "its grace ran out after the list")
		require.Nil(t, lease)
		dead, _, _ = b.ConfirmDead(t.Context(), "a", saved, 2*time.Second)
		require.True(t, dead)
		require.Equal(t, 1, s.lists)
	})
}

// What the cache shows after the proof counts, not what was read before.
func TestLeaseIsReadAfterTheProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		saved := s.renew("a", 0)
		b := s.breaker()
		b.opts.Prove = func(context.Context, schema.GroupResource, time.Time) freshness.Proof {
			time.Sleep(time.Second)
			s.renew("a", 0)
			return freshness.Proof{Outcome: freshness.Proven}
		}
		b.BeginPass(t.Context())
		dead, lease, age := b.ConfirmDead(t.Context(), "a", saved, time.Second)
		require.False(t, dead)
		require.NotNil(t, lease)
		require.Zero(t, age)
	})
}

// Whatever a node's clock says, a live node has most of its grace left; and the clock of the server and of
// this process may differ.
func TestClocksOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		b := s.breaker()
		saved := s.renew("a", 0).DeepCopy()
		b.BeginPass(t.Context())
		s.freeze(true)
		for skew, want := range map[time.Duration]time.Duration{
			0:                 0,
			5 * time.Minute:   0,
			-5 * time.Second:  5 * time.Second,
			-39 * time.Second: b.suspectAfter(),
			-5 * time.Minute:  0,
		} {
			time.Sleep(40 * time.Second)
			silent := 40 * time.Second
			s.live["a"] = saved.DeepCopy()
			s.live["a"].Spec.RenewTime = new(metav1.NewMicroTime(saved.Spec.RenewTime.Add(silent + skew)))
			b.leases, b.openedAt = liveLeases{read: map[string]leaseRead{}}, time.Time{}
			b.BeginPass(t.Context())
			lease, age, beats := b.Lease(t.Context(), "a", saved, saved.DeepCopy(), silent)
			require.NotNil(t, lease)
			require.True(t, beats)
			require.Equal(t, want, age, "%s", skew)
		}
	})
}

// A list that takes long holds no pass for longer than refreshWait, and the workers of a pass not either, however many nodes
// they look at. It goes on, and a later pass has it.
func TestAPassDoesNotWaitForASlowList(t *testing.T) {
	const latency = 10 * time.Second
	silent := func(t *testing.T) (s *server, b *Nodes, saved *coordv1.Lease) {
		s = newServer(t)
		saved = s.renew("a", 0)
		s.freeze(true)
		time.Sleep(grace + every)
		s.renew("a", 0)
		return s, s.breaker(), saved
	}
	t.Run("when it begins", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, b, saved := silent(t)
			b.BeginPass(t.Context())
			_, lease, _ := b.ConfirmDead(t.Context(), "a", saved, time.Second)
			require.NotNil(t, lease, "the breaker opens")
			time.Sleep(b.suspectAfter() / 2)
			s.mu.Lock()
			s.latency = latency
			s.mu.Unlock()
			begins := time.Now()
			b.BeginPass(t.Context())
			require.LessOrEqual(t, time.Since(begins), refreshWait)
			require.Equal(t, 1, s.lists, "the second is under way")
			time.Sleep(latency)
			b.BeginPass(t.Context())
			require.Equal(t, 2, s.lists)
			time.Sleep(latency)
		})
	})
	t.Run("by its workers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, b, saved := silent(t)
			s.latency = latency
			b.BeginPass(t.Context())
			begins := time.Now()
			for range 3 {
				dead, lease, _ := b.ConfirmDead(t.Context(), "a", saved, time.Second)
				require.False(t, dead, "nothing is known yet")
				require.Nil(t, lease)
			}
			require.LessOrEqual(t, time.Since(begins), refreshWait)
			time.Sleep(latency)
			b.BeginPass(t.Context())
			dead, lease, _ := b.ConfirmDead(t.Context(), "a", saved, latency+every)
			require.False(t, dead)
			require.NotNil(t, lease, "the list has come")
		})
	})
}

// While the breaker is open a node's silence counts from the time in its lease, by which the dead are found as fast as with a good cache, though lists are up to
// 10 s apart. Where the write of its last heartbeat took long, it is marked that much earlier than on stock.
func TestSilenceCountsFromTheTimeOfTheLease(t *testing.T) {
	const last, takes = 92 * time.Second, 9 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		began := time.Now()
		l := run(t, s, 2, map[int]time.Duration{1: last - takes}, 4*time.Minute, func(now time.Duration) {
			switch now {
			case time.Minute:
				s.freeze(true)
			case last:
				s.renew(name(1), -takes)
			}
		})
		require.True(t, l.opened)
		require.True(t, l.nodes[name(0)].markedAt.IsZero())
		marked := l.nodes[name(1)].markedAt.Sub(began)
		require.GreaterOrEqual(t, marked, last-takes+grace)
		require.Less(t, marked, last+grace)
	})
}
