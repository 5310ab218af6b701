// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
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
	rewound      bool          // no resource version is ever reached
	opaque       bool          // resource versions cannot be compared
	latency      time.Duration // of live reads
	fence        time.Duration // that a proof takes; it goes on when who asked has gone
	fenced       time.Time     // when the last proof that was had was asked for
	asking       bool
	// proof is what proofs end in, if not what the caches are.
	proof              *freshness.Proof
	listErr, getErr    error
	lists, gets, reads int
	proofs             int
	reports            []string
	skews              map[int]time.Duration // of the nodes' clocks
}

func newServer(t *testing.T) *server {
	return &server{t: t, live: map[string]*coordv1.Lease{}, cached: map[string]*coordv1.Lease{}, nodes: map[string]*corev1.Node{}, seen: map[string]*corev1.Node{}}
}

// renew is a heartbeat of a node whose clock is off.
func (s *server) renew(name string, skew time.Duration) *coordv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	rv := strconv.Itoa(s.rv)
	if s.opaque {
		rv = "v" + rv
	}
	l := &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease, ResourceVersion: rv},
		Spec: coordv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now().Add(skew)))}}
	s.live[name] = l
	if !s.frozen {
		s.cached[name] = l
	}
	return l
}

// sync brings the cache up to date unless it is frozen.
func (s *server) sync() {
	if s.frozen {
		return
	}
	maps.Copy(s.cached, s.live)
	maps.Copy(s.seen, s.nodes)
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

func (s *server) prove(ctx context.Context, _ schema.GroupResource, asOf time.Time) freshness.Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proofs++
	for s.fence > 0 && s.fenced.Before(asOf) {
		if ctx.Err() != nil {
			return freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonTimeout}
		}
		if began := time.Now(); !s.asking {
			s.asking = true
			time.AfterFunc(s.fence, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.asking, s.fenced = false, began
			})
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		s.mu.Lock()
	}
	switch {
	case s.proof != nil:
		return *s.proof
	case s.frozen:
		return freshness.Proof{Outcome: freshness.Stale}
	}
	return freshness.Proof{Outcome: freshness.Proven}
}

// wait locks the server when it is about to answer a live read.
func (s *server) wait() {
	s.mu.Lock()
	latency := s.latency
	s.mu.Unlock()
	time.Sleep(latency)
	s.mu.Lock()
}

func (s *server) breaker() *Nodes {
	return NewNodes(NodesOptions{
		Controller: "test", Grace: grace, Prove: s.prove, Budget: livereads.NewBudget(livereads.DefaultRate, livereads.DefaultBurst),
		Reached: func(rv string) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.frozen && !s.rewound
		},
		Lease: func(name string) *coordv1.Lease { s.mu.Lock(); defer s.mu.Unlock(); return s.cached[name] },
		Node:  func(name string) *corev1.Node { s.mu.Lock(); defer s.mu.Unlock(); return s.seen[name] },
		ListLeases: func(_ context.Context, opts metav1.ListOptions) (*coordv1.LeaseList, error) {
			s.wait()
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
			s.wait()
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
	held  int // passes
	// opened is whether the breaker was ever seen open.
	opened bool
}

func (l *lifecycle) pass(ctx context.Context) {
	defer func() { l.opened = l.opened || !l.b.openedAt.IsZero() }()
	require.True(l.s.t, l.b.BeginPass(ctx))
	if l.b.held {
		l.held++
	}
	for name, w := range l.nodes {
		l.judge(ctx, name, w)
	}
}

// judge is what a pass does with a node.
func (l *lifecycle) judge(ctx context.Context, name string, w *watched) {
	cached := l.b.opts.Lease(name)
	lease, age, beats := l.b.Lease(ctx, name, cached, w.saved, time.Since(w.probe))
	if beats {
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

// run has n nodes send heartbeats every 10 s, each from its own time on, until it dies, and a pass
// every 5 s. at is called every second with the seconds since the beginning.
func run(t *testing.T, s *server, n int, deaths map[int]time.Duration, length time.Duration, at func(time.Duration)) *lifecycle {
	return runOn(t, s, s.breaker(), n, deaths, length, at)
}

// runOn is run with a breaker that the test looks at.
func runOn(t *testing.T, s *server, b *Nodes, n int, deaths map[int]time.Duration, length time.Duration, at func(time.Duration)) *lifecycle {
	l := &lifecycle{s: s, b: b, nodes: map[string]*watched{}}
	for i := range n {
		s.renew(name(i), 0)
		l.nodes[name(i)] = &watched{probe: time.Now()}
	}
	for second := range int(length / time.Second) {
		now := time.Duration(second) * time.Second
		for i := range n {
			if death, dies := deaths[i]; (second+i)%10 == 0 && (!dies || now < death) {
				s.renew(name(i), s.skews[i])
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
