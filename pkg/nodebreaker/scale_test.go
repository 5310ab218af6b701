// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// scale is node lifecycle over many nodes: passes with the workers of upstream, one after another with 5 s in between,
// while nodes send heartbeats every 10 s until they die.
type scale struct {
	*lifecycle
	began   time.Time
	slowest time.Duration // pass
	asked   int           // live reads, at most, in a minute
}

const scaleWorkers = 8

func (s *server) runScale(n int, deaths map[int]time.Duration, length time.Duration, at func(time.Duration, *Nodes)) *scale {
	sc := &scale{lifecycle: &lifecycle{s: s, b: s.breaker(), nodes: map[string]*watched{}}, began: time.Now()}
	for i := range n {
		s.renew(name(i), 0)
		sc.nodes[name(i)] = &watched{probe: time.Now()}
	}
	ctx := s.t.Context()
	var passes sync.WaitGroup
	passes.Go(func() {
		time.Sleep(500 * time.Millisecond) // No list is of the moment of a heartbeat: whether it had that would be chance, and of 15,000 nodes some be marked after 66 s.
		for time.Since(sc.began) < length {
			start := time.Now()
			require.True(s.t, sc.b.BeginPass(ctx))
			work := make(chan string)
			var workers sync.WaitGroup
			for range scaleWorkers {
				workers.Go(func() {
					for name := range work {
						sc.judge(ctx, name, sc.nodes[name])
					}
				})
			}
			for i := range n {
				work <- name(i)
			}
			close(work)
			workers.Wait()
			sc.slowest = max(sc.slowest, time.Since(start))
			time.Sleep(every)
		}
	})
	reads := []int{}
	for second := range int(length / time.Second) {
		now := time.Duration(second) * time.Second
		for i := second % 10; i < n; i += 10 {
			if death, dies := deaths[i]; !dies || now < death {
				s.renew(name(i), 0)
			}
		}
		at(now, sc.b)
		s.mu.Lock()
		reads = append(reads, s.reads)
		s.mu.Unlock()
		sc.asked = max(sc.asked, reads[second]-reads[max(0, second-60)])
		time.Sleep(time.Second)
	}
	passes.Wait()
	return sc
}

// markedWithin asserts that nobody is marked but the dead, and returns how long after their deaths.
func (sc *scale) markedWithin(deaths map[int]time.Duration, bound time.Duration) {
	t := sc.s.t
	slowest := time.Duration(0)
	for i := range len(sc.nodes) {
		w := sc.nodes[name(i)]
		death, dies := deaths[i]
		if !dies {
			require.True(t, w.markedAt.IsZero(), "%s lives", name(i))
			continue
		}
		require.False(t, w.markedAt.IsZero(), "%s is dead", name(i))
		slowest = max(slowest, w.markedAt.Sub(sc.began)-death)
	}
	require.LessOrEqual(t, slowest, bound)
	t.Logf("%d nodes: the dead marked within %s, slowest pass %s, at most %d live reads in a minute", len(sc.nodes), slowest, sc.slowest, sc.asked)
}

// Whatever the number of nodes, while the watch of the leases is held the dead are found as fast as from a good cache,
// no pass waits long, and there are at most 30 live reads in a minute.
func TestManyNodesWithHeldLeases(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector: hack/test-unit.sh runs it without")
	}
	for n, latencies := range map[int][]time.Duration{1000: {0, time.Second}, 15000: {time.Second}} {
		for _, latency := range latencies {
			t.Run(fmt.Sprint(n, " nodes, answers after ", latency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t)
					s.latency = latency
					deaths := map[int]time.Duration{} // One after the other, each of which asks for a list.
					for i := range 25 {
						deaths[i] = time.Duration(65+3*i) * time.Second
					}
					sc := s.runScale(n, deaths, 4*time.Minute, func(now time.Duration, _ *Nodes) {
						switch now {
						case 60 * time.Second:
							s.freeze(true)
						case 200 * time.Second:
							s.freeze(false)
						}
					})
					sc.markedWithin(deaths, grace+2*every+4*latency)
					require.LessOrEqual(t, sc.slowest, 2*refreshWait)
					require.LessOrEqual(t, sc.asked, 30)
					require.Zero(t, sc.b.openedAt)
					require.Nil(t, sc.b.leases.list, "nobody needs it")
				})
			})
		}
	}
}

// Our own reads of nodes leave the lists of leases their share of the budget: dead nodes are marked in time also if the
// watches of nodes and of leases are held and others are NotReady.
func TestListsBesideReadsOfNodes(t *testing.T) {
	const turn = 50 * time.Millisecond
	for _, latency := range []time.Duration{0, time.Second} {
		t.Run(latency.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				s.latency = latency
				deaths := map[int]time.Duration{}
				for i := range 12 {
					deaths[100+i] = time.Duration(70+5*i) * time.Second
				}
				var reading sync.WaitGroup
				end := make(chan struct{})
				sc := s.runScale(1200, deaths, 4*time.Minute, func(now time.Duration, b *Nodes) {
					if now != 60*time.Second {
						return
					}
					s.freeze(true)
					// 12 nodes are NotReady, and all that has to do with them asks whether they are still so.
					for i := range 12 {
						s.ready(name(i), corev1.ConditionFalse)
						reading.Go(func() {
							for {
								select {
								case <-end:
									return
								case <-time.After(turn):
									_ = b.ProveNode(t.Context(), name(i), corev1.ConditionFalse)
								}
							}
						})
					}
				})
				close(end)
				reading.Wait()
				// A list waits for the budget behind a read of a node, refreshWait at most, and so may a pass, once before its
				// workers begin and once in them. A pass may begin one turn of the readers late.
				sc.markedWithin(deaths, grace+2*(every+refreshWait)+turn)
			})
		})
	}
}
