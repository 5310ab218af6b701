// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// firstPause and maxPause are for how long an owner with refused writes is not woken without a proof. It doubles with each reconcile in
	// a row that had one, as the delay of a queue does.
	firstPause = time.Second
	maxPause   = 5 * time.Minute
	// reconciling is for how long it may be unknown what a reconcile asks for.
	reconciling = 5 * time.Second
)

// refusals are the owners of which the server refuses writes. The queue's backoff has these tried again: an action that is put off must not
// have them tried more often. The zero value is empty. All methods may be called concurrently.
type refusals struct {
	owners atomic.Int32 // zero in ordinary times, in which a reconcile takes no lock
	mu     sync.Mutex
	of     map[types.NamespacedName]*refusal
}

type refusal struct {
	tries   int       // reconciles in a row with a refused write, before the last one
	began   time.Time // the last one
	refused bool      // it has had a refused write
	asked   bool      // it has put an action off
}

// note notes that a write for the owner was refused.
func (r *refusals) note(owner types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[owner] == nil {
		if r.of == nil {
			r.of = map[types.NamespacedName]*refusal{}
		}
		r.of[owner] = &refusal{asked: true} // It may have done so before the write.
		r.owners.Add(1)
	}
	r.of[owner].refused = true
}

// begin notes that a reconcile begins. If the last one had no refused write, the owner is as any other.
func (r *refusals) begin(owner types.NamespacedName) {
	if r.owners.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.of[owner]
	switch {
	case of == nil:
	case of.refused:
		*of = refusal{tries: of.tries + 1, began: time.Now()}
	default:
		r.remove(owner)
	}
}

// refuses reports whether a write of the owner's reconcile has been refused.
func (r *refusals) refuses(owner types.NamespacedName) bool {
	if r.owners.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[owner] != nil && r.of[owner].refused
}

// asks notes that the reconcile puts an action off.
func (r *refusals) asks(owner types.NamespacedName) {
	if r.owners.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.of[owner]; of != nil {
		of.asked = true
	}
}

// forget forgets an owner.
func (r *refusals) forget(owner types.NamespacedName) {
	if r.owners.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(owner)
}

// remove forgets an owner. The mutex is held.
func (r *refusals) remove(owner types.NamespacedName) {
	if r.of[owner] != nil {
		delete(r.of, owner)
		r.owners.Add(-1)
	}
}

// pause reports whether a put-off action that has waited since then must not wake the owner yet.
func (r *refusals) pause(owner types.NamespacedName, since time.Time) bool {
	if r.owners.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.of[owner]
	if of == nil || !(of.refused && of.asked) && time.Since(of.began) >= reconciling {
		return false
	}
	return time.Since(since) < min(firstPause<<min(of.tries, 20), maxPause)
}

// Refused notes that a write for the owner was refused: nothing was written.
func (s *Store) Refused(owner types.NamespacedName) { s.refusals.note(owner) }

// outlast waits, while writes for the owner are refused, until the cache is proven or the owner may be tried again.
func (s *Store) outlast(ctx context.Context, owner types.NamespacedName, resource schema.GroupResource, since time.Time) {
	for s.refusals.pause(owner, since) && ctx.Err() == nil {
		proof := s.prover.Prove(ctx, resource, s.asOf(owner, time.Now(), ProofAge))
		if proof.Fresh() {
			return
		}
		s.prover.Wait(ctx, resource, proof)
	}
}
