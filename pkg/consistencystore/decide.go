// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// Decide implements what consistency.Decide asks for. It makes a live read once the cache was shown to be stale, or could
// not be proven for promptly. After a read that has refuted the action it makes no other until the cache has moved.
func (r *reading) Decide(ctx context.Context, d consistency.Decision) bool {
	s := r.store
	if s.prover == nil || !s.registerFollowed(ctx, d.Resource) {
		return true
	}
	owner := types.NamespacedName{Name: ownerOf(r.key, d.Action)}
	v := r.viewFor(owner.Name, d.Now)
	err := r.pass.Prove(ctx, owner.Name, d.Resource)
	r.waits(owner, err != nil)
	var unproven *UnprovenError
	switch {
	case err == nil:
		return d.Cached()
	case !errors.As(err, &unproven) || unproven.Again():
		return false
	}
	s.mu.Lock()
	s.slow = time.Now()
	wait := s.waitOf(owner)
	version := v.versions[d.Resource]
	read := wait != nil && (wait.refuted == "" || wait.refuted != version)
	due := wait != nil && time.Since(wait.since) >= promptly
	s.mu.Unlock()
	if _, stale := s.shownStale(d.Resource); !read || !stale && !due || s.budget == nil {
		return false
	}
	var right bool
	err = s.budget.Try(ctx, s.name, d.Resource, liveTimeout, func(ctx context.Context) (err error) {
		right, err = d.Read(ctx)
		return err
	})
	if err != nil {
		klog.FromContext(ctx).V(4).Info("An action waits for a proof or a live read", "controller", s.name, "action", owner.Name, "err", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !right:
		wait.refuted = version
	case wait.ended.IsZero():
		wait.over = true
		s.decided(r.key, owner)
	default: // It ended while the server was asked.
		s.forget(owner)
	}
	return right
}

// viewFor makes the view of an action, unless it has one.
func (r *reading) viewFor(action string, exact bool) *view {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, known := r.views[action].(*view); known {
		return v
	}
	v := r.viewOf().(*view)
	v.exact, v.patience = exact, r.store.patience() // A proof of another value of the object may have been slow.
	r.views[action] = v
	return v
}

// forget forgets the wait of an action that was decided without a proof. mu must be held.
func (s *Store) forget(owner types.NamespacedName) {
	delete(s.putOffs, owner)
	delete(s.ahead, owner)
	of := s.waiting[queueKey(owner)]
	if delete(of, owner); len(of) == 0 {
		delete(s.waiting, queueKey(owner))
	}
}

// waitOf is the wait of the owner's action, or the last one. mu must be held.
func (s *Store) waitOf(owner types.NamespacedName) *putOff {
	if r := s.held.actionOf(owner); r != nil {
		return r
	}
	return s.putOffs[owner]
}
