// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// tally are the objects from which the lower value was computed, and that value.
type tally struct {
	*owned
	resource schema.GroupResource
	// at is when the value was computed: the objects are proven as of then.
	at time.Time
	// to is the lower value.
	to int32
}

// counts reports whether a value was computed from objects of the resource.
func (v *view) counts(resource schema.GroupResource) bool {
	return v.counted != nil && v.counted.resource == resource
}

// ProveLowered implements what consistency.ProveLowered asks for. Measurements change all the time, so each reading after the
// wait for a slow proof would need a newer proof. While the counted objects are as they were, the first measurement counts.
func (r *reading) ProveLowered(ctx context.Context, action string, to int32, of consistency.Counted, resources ...schema.GroupResource) (int32, error) {
	s := r.store
	if s.prover == nil || of.List == nil || !s.registerFollowed(ctx, of.Resource) {
		return to, r.Prove(ctx, action, resources...)
	}
	owner := types.NamespacedName{Name: ownerOf(r.key, action)}
	v := r.viewFor(owner.Name, false)
	s.mu.Lock()
	cache, wait := s.followed[of.Resource].LastSyncRVGetter, s.slowProof(owner, v.at)
	s.mu.Unlock()
	if wait != nil && wait.counted != nil && wait.counted.unchanged() {
		first := *wait.counted
		first.to = max(first.to, to)
		v.counted = &first
	} else {
		items, err := of.List()
		if err != nil {
			return to, r.Prove(ctx, action, append(resources, of.Resource)...)
		}
		v.counted = &tally{resource: of.Resource, at: time.Now(), to: to,
			owned: &owned{cache: cache, version: v.versions[of.Resource], number: len(items), list: of.List}}
	}
	err := r.Prove(ctx, action, append(resources, of.Resource)...)
	return v.counted.to, err
}
