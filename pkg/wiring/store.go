// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// store is one controller's consistency store, kept by the shared tracker. It implements
// consistency.ConsistencyStore and what the seam asks for besides: OnReady, ProveFresh and Deleted.
type store struct {
	*rvtracker.Controller
	add    atomic.Pointer[func(key string)]
	proofs proofs
}

var (
	_ consistency.ConsistencyStore = &store{}
	_ deleteRecorder               = &store{}
)

// OnReady sets where the keys of parked owners go when they are ready.
func (s *store) OnReady(add func(key string)) { s.add.Store(&add) }

// wake puts a parked owner back on its controller's queue.
func (s *store) wake(owner types.NamespacedName) {
	if add := s.add.Load(); add != nil {
		(*add)(key(owner))
	}
}

// key is the owner's work queue key, as cache.MetaNamespaceKeyFunc makes it.
func key(owner types.NamespacedName) string {
	return strings.TrimPrefix(owner.String(), "/")
}

// proofs says whether a cache is as new as the server is now. A nil error means that it is.
type proofs interface {
	Prove(ctx context.Context, resource schema.GroupResource) error
}

// ProveFresh returns nil if the caches of the resources are as new as this call, and otherwise what
// is known of the first that is not.
func (s *store) ProveFresh(ctx context.Context, owner types.NamespacedName, resources ...schema.GroupResource) error {
	if s.proofs == nil {
		return nil
	}
	var errs []error
	for _, resource := range resources {
		if err := s.proofs.Prove(ctx, resource); err != nil {
			errs = append(errs, fmt.Errorf("cache of %s may be stale: %w", resource, err))
		}
	}
	return errors.Join(errs...)
}
