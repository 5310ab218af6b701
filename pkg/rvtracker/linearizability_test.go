// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The sequential specification of one owner on one source.
type specState struct {
	pos, floor int
	pending    int
	before     bool // the last write was recorded before the fence under way
	lower      bool
	waiting    bool // a record without a write: the source was not usable
	parked     bool
	held       bool

	tokTop, live int
}

type specOp struct {
	kind string // write, observe, clear, begin, answer, ensure, wake, end
	rv   int
	list bool // it is a list that is observed
}

func (s specState) usable() bool { return s.floor == 0 && !s.held }

// drained is what any number of waker passes make of the state.
func (s specState) drained() specState {
	if s.usable() && s.pending <= s.pos {
		s.pending, s.lower, s.waiting = 0, false, false
	}
	return s
}

func (s specState) idle() bool { return s.pending == 0 && !s.waiting }

func specStep(state, input, output any) (bool, any) {
	s, op := state.(specState), input.(specOp)
	switch op.kind {
	case "write":
		switch {
		case s.usable() && op.rv <= s.pos:
		case op.rv > s.pending:
			s.lower = s.lower || s.pending > 0 // A rewind to between the two leaves that one.
			s.pending, s.before = op.rv, false
		default:
			s.before = false
			s.lower = s.lower || op.rv < s.pending
		}
	case "observe":
		if op.rv < s.pos {
			if s.held {
				s.held = false
			} else if s.pos > s.floor {
				s.floor = s.pos
			}
		}
		s.held = s.held && !op.list
		s.pos = op.rv
		if s.pos >= s.floor {
			s.floor = 0
		}
		s = s.drained()
	case "clear":
		s.pending, s.lower, s.waiting = 0, false, false
	case "begin":
		s.before = true
		s.tokTop = s.live
		if !s.held {
			s.tokTop = max(s.live, s.pos, s.floor)
		}
	case "answer":
		lost := s.before && s.pending > op.rv
		if op.rv >= s.tokTop && !lost {
			s.live = max(s.live, op.rv)
			break
		}
		s.live = op.rv
		if !s.held {
			s.held = s.floor == 0 || op.rv < s.pos
		}
		s.floor = 0
		if lost {
			if s.lower {
				s.pending, s.lower = op.rv, false
			} else {
				s.pending = 0
			}
			// The record goes with the write; if the source is not usable yet, the owner
			// asks again when it is woken.
			s.waiting = false
		}
		s = s.drained()
	case "ensure":
		ready := output.(bool)
		if ready != (s.idle() && s.usable()) {
			return false, s
		}
		s.parked = !ready
		if !ready && !s.usable() && s.pending == 0 {
			s.waiting = true
		}
	case "wake":
		if !s.parked || !s.idle() {
			return false, s
		}
		s.parked = false
	case "end":
		if s.parked && s.idle() {
			return false, s
		}
	}
	return true, s
}

// ensures is how often the reconciler asks, or clears.
const ensures = 8

// parkings tells since when each wait of an owner can have been, in their order: its wake was not before that.
type parkings struct {
	noMetrics
	asked *atomic.Int64
	since chan int64
}

func (p parkings) WaitStarted(string, schema.GroupResource) { p.since <- p.asked.Load() }

// recordHistory runs writers, a reconciler and an informer against one owner.
func recordHistory(seed uint64, f faults) []porcupine.Operation {
	var (
		mu     sync.Mutex
		ops    []porcupine.Operation
		now    atomic.Int64
		asked  atomic.Int64 // a moment before the ensure under way
		faulty sync.Mutex
	)
	add := func(op porcupine.Operation) {
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, op)
	}
	hit := func(counter *int, every int) bool {
		faulty.Lock()
		defer faulty.Unlock()
		return hits(counter, every)
	}
	var rnds [4]*rand.Rand
	for i := range rnds {
		rnds[i] = rand.New(rand.NewPCG(seed, uint64(i)))
	}
	yields := func(client int) int { return rnds[client].IntN(12) }
	do := func(client int, op specOp, call func() any) {
		for range yields(client) {
			runtime.Gosched()
		}
		start := now.Add(1)
		out := call()
		add(porcupine.Operation{ClientId: client, Input: op, Output: out, Call: start, Return: now.Add(1)})
	}

	parked := parkings{asked: &asked, since: make(chan int64, ensures+1)}
	t := New(Options{Metrics: parked})
	t.running = true
	store := &hookedStore{}
	c := t.ForController("c", map[schema.GroupResource]Store{pods: store}, func(types.NamespacedName) {
		since := <-parked.since
		if hit(&f.wakes, f.dropWake) {
			return
		}
		add(porcupine.Operation{ClientId: 4, Input: specOp{kind: "wake"}, Call: since, Return: now.Add(1)})
	})
	s := c.sources[pods]
	uid := types.UID("u")
	write := func(client, rv int) {
		do(client, specOp{kind: "write", rv: rv}, func() any {
			if !hit(&f.writes, f.dropWrite) {
				c.WroteAt(dsA, uid, pods, strconv.Itoa(rv))
			}
			return nil
		})
	}
	observe := func(rv int) {
		do(0, specOp{kind: "observe", rv: rv}, func() any { s.observe(strconv.Itoa(rv)); return nil })
	}
	fence := func(rv int) {
		var tok FenceToken
		do(0, specOp{kind: "begin"}, func() any { tok = s.BeginFence(); return nil })
		do(0, specOp{kind: "answer", rv: rv}, func() any {
			if !hit(&f.fences, f.dropFence) {
				s.ObserveFence(tok, strconv.Itoa(rv))
			}
			return nil
		})
	}
	observe(100)

	var wg, waker sync.WaitGroup
	stop := make(chan struct{})
	waker.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-t.wakeCh:
				t.wakePass()
			}
		}
	})
	for client := 1; client <= 2; client++ {
		rnd := rnds[client]
		wg.Go(func() {
			for range 6 {
				write(client, 50+rnd.IntN(80))
			}
		})
	}
	wg.Go(func() {
		rnd := rnds[3]
		for range ensures {
			if rnd.IntN(6) == 0 {
				do(3, specOp{kind: "clear"}, func() any { c.Clear(dsA, uid); return nil })
				continue
			}
			asked.Store(now.Add(1))
			do(3, specOp{kind: "ensure"}, func() any { return c.EnsureReady(dsA) == nil })
		}
	})
	wg.Go(func() {
		rnd := rnds[0]
		rv := 100
		for range 4 {
			rv += rnd.IntN(12)
			observe(rv)
		}
		switch rnd.IntN(3) {
		case 0: // the store goes back first
			observe(60)
			fence(62)
		case 1: // the fence is first
			fence(62)
			observe(60)
		case 2: // the store goes back for another reason
			observe(60)
			fence(rv + 20)
		}
		rv = 62
		for range 3 {
			rv += rnd.IntN(12)
			observe(rv)
		}
	})
	wg.Wait()
	fence(95) // drops what is left of the old epoch
	do(0, specOp{kind: "observe", rv: 96, list: true}, func() any {
		s.beginReplace()
		s.observe("96")
		return nil
	})
	for range 2 {
		fence(97)
	}
	observe(98)
	close(stop)
	waker.Wait()
	for done := false; !done; {
		select {
		case <-t.wakeCh:
			t.wakePass()
		default:
			done = true
		}
	}
	do(0, specOp{kind: "end"}, func() any { return nil })
	do(0, specOp{kind: "ensure"}, func() any { return c.EnsureReady(dsA) == nil })
	return ops
}

var specModel = porcupine.Model{
	Init: func() any { return specState{} },
	Step: specStep,
}

func describe(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&b, "%4d-%4d client %d: %+v -> %v\n", op.Call, op.Return, op.ClientId, op.Input, op.Output)
	}
	return b.String()
}

var histories = flag.Int("rvtracker.histories", 300, "concurrent histories to check")

func TestLinearizable(t *testing.T) {
	n := *histories
	var refused, wakes int
	for seed := range n {
		ops := recordHistory(uint64(seed), faults{})
		for _, op := range ops {
			if op.Input.(specOp).kind == "wake" {
				wakes++
			} else if op.Output == false {
				refused++
			}
		}
		require.True(t, porcupine.CheckOperations(specModel, ops), "seed %d:\n%s", seed, describe(ops))
	}
	t.Logf("%d refused, %d wakes", refused, wakes)
	// Histories in which nobody waits would prove nothing.
	require.Greater(t, refused, n)
	require.Greater(t, wakes, n/2)
}

func TestLinearizabilityCatchesMutants(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    faults
	}{
		{"records dropped", faults{dropWrite: 2}},
		{"wake lost", faults{dropWake: 1}},
		{"rewind ignored", faults{dropFence: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range 200 {
				if !porcupine.CheckOperations(specModel, recordHistory(uint64(seed), tc.f)) {
					t.Logf("caught by history %d", seed)
					return
				}
			}
			t.Fatal("the mutant was not caught")
		})
	}
}
