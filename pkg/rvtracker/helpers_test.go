// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"runtime"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
)

var (
	pods = schema.GroupResource{Resource: "pods"}
	sets = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	dsA  = types.NamespacedName{Namespace: "ns", Name: "a"}
	dsB  = types.NamespacedName{Namespace: "ns", Name: "b"}
	dsC  = types.NamespacedName{Namespace: "ns", Name: "c"}
	pod1 = types.NamespacedName{Namespace: "ns", Name: "pod-1"}
)

// plainStore is what stock client-go offers.
type plainStore struct {
	mu    sync.Mutex
	rv    string
	items map[string]*metav1.ObjectMeta
}

func (s *plainStore) LastStoreSyncResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rv
}

func (s *plainStore) GetByKey(key string) (any, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.items[key]
	if !ok {
		return nil, false, nil
	}
	return m, true, nil
}

func (s *plainStore) set(rv string, change func(map[string]*metav1.ObjectMeta)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv = rv
	if s.items == nil {
		s.items = map[string]*metav1.ObjectMeta{}
	}
	if change != nil {
		change(s.items)
	}
}

// hookedStore is what our client-go offers.
type hookedStore struct {
	plainStore
	observers, replaceObservers []func(string)
}

func (s *hookedStore) AddResourceVersionObserver(fn func(string)) {
	s.observers = append(s.observers, fn)
}

func (s *hookedStore) AddReplaceObserver(fn func(string)) {
	s.replaceObservers = append(s.replaceObservers, fn)
}

// relist replaces the content as a list does.
func (s *hookedStore) relist(rv string, change func(map[string]*metav1.ObjectMeta)) {
	for _, fn := range s.replaceObservers {
		fn(rv)
	}
	s.change(rv, change)
}

func (s *hookedStore) apply(rv string) { s.change(rv, nil) }

func (s *hookedStore) change(rv string, change func(map[string]*metav1.ObjectMeta)) {
	s.set(rv, change)
	for _, fn := range s.observers {
		fn(rv)
	}
}

func put(key types.NamespacedName, uid types.UID) func(map[string]*metav1.ObjectMeta) {
	return func(m map[string]*metav1.ObjectMeta) {
		m[key.String()] = &metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}
	}
}

func terminate(key types.NamespacedName) func(map[string]*metav1.ObjectMeta) {
	return func(m map[string]*metav1.ObjectMeta) {
		c := m[key.String()].DeepCopy()
		c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		m[key.String()] = c
	}
}

func drop(key types.NamespacedName) func(map[string]*metav1.ObjectMeta) {
	return func(m map[string]*metav1.ObjectMeta) { delete(m, key.String()) }
}

// recorder counts what the tracker reports.
type recorder struct {
	mu      sync.Mutex
	counts  map[string]int
	waits   map[string]int
	latency []time.Duration
	parked  map[string]int
	waited  []time.Duration
}

func newRecorder() *recorder {
	return &recorder{counts: map[string]int{}, waits: map[string]int{}, parked: map[string]int{}}
}

func (r *recorder) inc(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

func (r *recorder) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

func (r *recorder) WaitStarted(string, schema.GroupResource) { r.inc("wait") }
func (r *recorder) WaitEnded(_ string, d time.Duration, o string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits[o]++
	r.waited = append(r.waited, d)
}

func (r *recorder) Parked(c, reason string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parked[c+" "+reason] = n
}

func (r *recorder) WriteToCache(_ string, _ schema.GroupResource, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latency = append(r.latency, d)
}
func (r *recorder) Stale(string, schema.GroupResource)                 { r.inc("stale") }
func (r *recorder) Dropped(_ string, _ schema.GroupResource, o string) { r.inc("dropped" + o) }
func (r *recorder) Untracked(string, schema.GroupResource)             { r.inc("untracked") }
func (r *recorder) Incomparable(_ schema.GroupResource, o string) {
	r.inc("incomparable" + o)
}
func (r *recorder) Regression(schema.GroupResource)    { r.inc("regression") }
func (r *recorder) Rewind(schema.GroupResource)        { r.inc("rewind") }
func (r *recorder) Fence(schema.GroupResource, error)  { r.inc("fence") }
func (r *recorder) Forgotten(gr schema.GroupResource)  { r.inc("forgotten" + gr.Group) }
func (r *recorder) Proof(schema.GroupResource, string) { r.inc("proof") }

// bench is a tracker whose goroutines are stepped by hand.
type bench struct {
	t       testing.TB
	tracker *Tracker
	clock   *testclock.FakeClock
	metrics *recorder
	pods    *hookedStore
	sets    *hookedStore
	c       *Controller
	woken   []types.NamespacedName
	stale   []Wait
}

func newBench(t testing.TB, opts Options) *bench {
	b := &bench{t: t, clock: testclock.NewFakeClock(time.Unix(1000, 0)), metrics: newRecorder(),
		pods: &hookedStore{}, sets: &hookedStore{}}
	opts.clock, opts.Metrics = b.clock, b.metrics
	opts.OnStale = func(w Wait) { b.stale = append(b.stale, w) }
	b.tracker = New(opts)
	b.tracker.running = true
	b.c = b.tracker.ForController("daemonset", map[schema.GroupResource]Store{pods: b.pods, sets: b.sets},
		func(n types.NamespacedName) { b.woken = append(b.woken, n) })
	return b
}

// WroteAt is Wrote for a write of which is not known when it was sent.
func (c *Controller) WroteAt(name types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, rv string) {
	c.Wrote(name, ownerUID, resource, rv, Sent{})
}

// pump runs the waker until it has nothing to do.
func (b *bench) pump() {
	b.t.Helper()
	pumpTracker(b.t, b.tracker)
	b.tracker.makeNotes()
}

func pumpTracker(tb interface{ Fatalf(string, ...any) }, t *Tracker) {
	for range 1000 {
		select {
		case <-t.wakeCh:
			t.wakePass()
		default:
			return
		}
	}
	tb.Fatalf("the waker spins")
}

func (b *bench) takeWoken() []types.NamespacedName {
	b.pump()
	w := b.woken
	b.woken = nil
	return w
}

func (b *bench) source(gr schema.GroupResource) *Source { return b.c.sources[gr] }

// awaitRunning returns once Run has begun.
func awaitRunning(t *Tracker) {
	for running := false; !running; runtime.Gosched() {
		t.mu.Lock()
		running = t.running
		t.mu.Unlock()
	}
}
