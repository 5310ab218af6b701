// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package circuitbreaker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

const (
	grace = 50 * time.Second
	every = 5 * time.Second // from pass to pass
)

// server has leases and nodes, and a cache of them that may be frozen.
type server struct {
	t *testing.T

	mu           sync.Mutex
	rv           int
	live, cached map[string]*coordv1.Lease
	nodes, seen  map[string]*corev1.Node
	frozen       bool
	rewound      bool // no resource version is ever reached
	// proof is what proofs end in, if not what the caches are.
	proof              *freshness.Proof
	listErr, getErr    error
	lists, gets, reads int
	proofs             int
	reports            []string
}

func newServer(t *testing.T) *server {
	return &server{t: t, live: map[string]*coordv1.Lease{}, cached: map[string]*coordv1.Lease{}, nodes: map[string]*corev1.Node{}, seen: map[string]*corev1.Node{}}
}

// renew is a heartbeat of a node whose clock is off.
func (s *server) renew(name string, skew time.Duration) *coordv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	l := &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease, ResourceVersion: strconv.Itoa(s.rv)},
		Spec: coordv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(skew)))}}
	s.live[name] = l
	s.sync()
	return l
}

// sync brings the cache up to date unless it is frozen.
func (s *server) sync() {
	if s.frozen {
		return
	}
	for name, l := range s.live {
		s.cached[name] = l
	}
	for name, n := range s.nodes {
		s.seen[name] = n
	}
}

func (s *server) freeze(frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = frozen
	s.sync()
}

// ready sets a node's Ready condition.
func (s *server) ready(name string, status corev1.ConditionStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	s.sync()
}

func (s *server) prove(context.Context, schema.GroupResource, time.Time) freshness.Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proofs++
	switch {
	case s.proof != nil:
		return *s.proof
	case s.frozen:
		return freshness.Proof{Outcome: freshness.Stale}
	}
	return freshness.Proof{Outcome: freshness.Proven}
}

func (s *server) breaker() *Nodes {
	return NewNodes(NodesOptions{
		Controller: "test", Grace: grace, Prove: s.prove, Budget: NewBudget(DefaultRate, DefaultBurst),
		Reached: func(rv string) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.frozen && !s.rewound
		},
		Lease: func(name string) *coordv1.Lease { s.mu.Lock(); defer s.mu.Unlock(); return s.cached[name] },
		Node:  func(name string) *corev1.Node { s.mu.Lock(); defer s.mu.Unlock(); return s.seen[name] },
		ListLeases: func(_ context.Context, opts metav1.ListOptions) (*coordv1.LeaseList, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reads++
			require.Empty(s.t, opts.ResourceVersion, "a consistent read")
			if s.listErr != nil {
				return nil, s.listErr
			}
			out := &coordv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.rv)}}
			from, _ := strconv.Atoi(opts.Continue)
			to := min(from+int(opts.Limit), len(s.live))
			if from == 0 {
				s.lists++
			}
			if to < len(s.live) {
				out.Continue = strconv.Itoa(to)
			}
			for _, name := range slices.Sorted(maps.Keys(s.live))[from:to] {
				out.Items = append(out.Items, *s.live[name])
			}
			return out, nil
		},
		GetLease: func(_ context.Context, name string) (*coordv1.Lease, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gets++
			s.reads++
			if s.getErr != nil {
				return nil, s.getErr
			}
			if l := s.live[name]; l != nil {
				return l, nil
			}
			return nil, apierrors.NewNotFound(leasesResource, name)
		},
		GetNode: func(_ context.Context, name string) (*corev1.Node, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gets++
			if s.getErr != nil {
				return nil, s.getErr
			}
			if n := s.nodes[name]; n != nil {
				return n, nil
			}
			return nil, apierrors.NewNotFound(nodesResource, name)
		},
		Report: func(_ context.Context, cause string) {
			s.mu.Lock()
			s.reports = append(s.reports, cause)
			s.mu.Unlock()
		},
	})
}

func name(i int) string { return fmt.Sprint("node", i) }

// watched is what node lifecycle keeps of a node, and does with it: upstream's rules, on this breaker.
type watched struct {
	saved    *coordv1.Lease
	probe    time.Time
	markedAt time.Time
}

// lifecycle runs the passes of node lifecycle over the nodes.
type lifecycle struct {
	s     *server
	b     *Nodes
	nodes map[string]*watched
	held  int
	// opened is whether the breaker was ever seen open.
	opened bool
}

func (l *lifecycle) pass(ctx context.Context) {
	defer func() { l.opened = l.opened || !l.b.openedAt.IsZero() }()
	if !l.b.BeginPass(ctx) {
		l.held++
		return
	}
	for name, w := range l.nodes {
		cached := l.b.opts.Lease(name)
		lease, age := l.b.Lease(ctx, name, cached, w.saved, time.Since(w.probe))
		if newer(w.saved, lease) {
			w.saved, w.probe = lease, time.Now().Add(-age)
		}
		if overdue := time.Since(w.probe) - grace; overdue > 0 && w.markedAt.IsZero() {
			dead, live, age := l.b.ConfirmDead(ctx, name, w.saved, overdue)
			if live != nil {
				require.False(l.s.t, dead)
				w.saved, w.probe = live, time.Now().Add(-age)
			}
			if dead {
				w.markedAt = time.Now()
			}
		}
	}
}

// run has n nodes send heartbeats every 10 s, each from its own time on, until it dies, and a pass
// every 5 s. at is called every second with the seconds since the beginning.
func run(t *testing.T, s *server, n int, deaths map[int]time.Duration, length time.Duration, at func(time.Duration)) *lifecycle {
	l := &lifecycle{s: s, b: s.breaker(), nodes: map[string]*watched{}}
	for i := range n {
		s.renew(name(i), 0)
		l.nodes[name(i)] = &watched{probe: time.Now()}
	}
	for second := range int(length / time.Second) {
		now := time.Duration(second) * time.Second
		for i := range n {
			if death, dies := deaths[i]; (second+i)%10 == 0 && (!dies || now < death) {
				s.renew(name(i), 0)
			}
		}
		at(now)
		if now%every == 0 {
			l.pass(t.Context())
		}
		time.Sleep(time.Second)
	}
	return l
}

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
		"leases held": {nodes: 30, maxReadsAMinute: 14, wantTrips: true,
			fault: func(s *server) { s.freeze(true) }, heal: func(s *server) { s.freeze(false) }},
		"leases held, 1,000 nodes": {nodes: 1000, maxReadsAMinute: 30, wantTrips: true,
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

// Whatever a node's clock says, a live node has half its grace left; and the clock of the server and of
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
			-39 * time.Second: grace / 2,
		} {
			time.Sleep(40 * time.Second)
			silent := 40 * time.Second
			s.live["a"] = saved.DeepCopy()
			s.live["a"].Spec.RenewTime = ptr.To(metav1.NewMicroTime(saved.Spec.RenewTime.Add(silent + skew)))
			b.leases, b.openedAt = liveLeases{read: map[string]leaseRead{}}, time.Time{}
			lease, age := b.Lease(t.Context(), "a", saved, saved.DeepCopy(), silent)
			require.NotNil(t, lease)
			require.Equal(t, want, age, "%s", skew)
		}
	})
}

func TestFirstProbe(t *testing.T) {
	b := newServer(t).breaker()
	now := metav1.Now()
	for age, trusted := range map[time.Duration]bool{0: false, 5 * time.Minute: false, -5 * time.Minute: false, 24 * time.Hour: true, -24 * time.Hour: true} {
		created := metav1.NewTime(now.Add(-age))
		want := now
		if trusted {
			want = created
		}
		require.Equal(t, want, b.FirstProbe(created, now), age)
	}
}

func TestProveNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := newServer(t)
		s.ready("a", corev1.ConditionFalse)
		b := s.breaker()
		require.NoError(t, b.ProveNode(ctx, "a", corev1.ConditionFalse))
		require.ErrorIs(t, b.ProveNode(ctx, "a", corev1.ConditionUnknown), ErrChanged)
		require.ErrorIs(t, b.ProveNode(ctx, "gone", corev1.ConditionFalse), ErrChanged)
		require.Zero(t, s.gets, "the cache is proven fresh")

		s.freeze(true)
		s.ready("a", corev1.ConditionTrue)
		require.ErrorIs(t, b.ProveNode(ctx, "a", corev1.ConditionFalse), ErrChanged, "the cache still says False")
		require.ErrorIs(t, b.ProveNode(ctx, "a", corev1.ConditionFalse), ErrChanged)
		require.Equal(t, 1, s.gets, "a read is good for two seconds")
		time.Sleep(nodeAge + 1)
		s.ready("a", corev1.ConditionFalse)
		require.NoError(t, b.ProveNode(ctx, "a", corev1.ConditionFalse), "live it is False again")
		require.Equal(t, 2, s.gets)
		time.Sleep(nodeAge + 1)
		require.ErrorIs(t, b.ProveNode(ctx, "gone", corev1.ConditionFalse), ErrChanged)

		time.Sleep(nodeAge + 1)
		s.getErr = errors.New("no server")
		err := b.ProveNode(ctx, "a", corev1.ConditionFalse)
		require.ErrorContains(t, err, "no server")
		require.NotErrorIs(t, err, ErrChanged)
		s.getErr = nil
		b.opts.Budget = NewBudget(rate.Limit(0.001), 1)
		require.NoError(t, b.opts.Budget.Take(ctx, "another"))
		require.ErrorIs(t, b.ProveNode(ctx, "a", corev1.ConditionFalse), context.DeadlineExceeded, "the budget is spent")
	})
}

// A node that was just confirmed dead, and so was marked Unknown by the pass itself, needs no proof;
// but only to act on that, and only in that pass.
func TestConfirmedDeadNeedsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		saved := s.renew("a", 0)
		s.ready("a", corev1.ConditionTrue)
		b := s.breaker()
		b.BeginPass(t.Context())
		dead, _, _ := b.ConfirmDead(t.Context(), "a", saved, time.Second)
		require.True(t, dead)
		require.NoError(t, b.ProveNode(t.Context(), "a", corev1.ConditionUnknown))
		require.ErrorIs(t, b.ProveNode(t.Context(), "a", corev1.ConditionFalse), ErrChanged)
		b.BeginPass(t.Context())
		require.ErrorIs(t, b.ProveNode(t.Context(), "a", corev1.ConditionUnknown), ErrChanged)
	})
}

// All workers of a pass share one list, and its pages are one read each.
func TestOneListForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		const n = 2*pageSize + 1
		for i := range n {
			s.renew(name(i), 0)
		}
		s.proof = &freshness.Proof{Outcome: freshness.Unknown}
		b := s.breaker()
		b.BeginPass(t.Context())
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				dead, _, _ := b.ConfirmDead(t.Context(), name(i), s.cached[name(i)], time.Second)
				require.True(t, dead)
			})
		}
		wg.Wait()
		require.Equal(t, 1, s.lists)
		require.Equal(t, 3, s.reads)
		time.Sleep(every)
		b.BeginPass(t.Context())
		dead, lease, _ := b.ConfirmDead(t.Context(), name(0), s.cached[name(0)], time.Millisecond)
		require.False(t, dead || lease != nil, "three pages: the next list is due after 6 s")
	})
}
