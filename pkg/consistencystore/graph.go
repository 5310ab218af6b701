// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/graphguard"
)

// GuardGraph implements consistency.GraphStore. Without proofs there is no guard.
func (s *Store) GuardGraph(graph consistency.Graph) consistency.GraphGuard {
	if s.prover == nil {
		return nil
	}
	register := func(resource schema.GroupResource, store cache.Store) error {
		if s.register == nil {
			return nil
		}
		return s.register(resource, store)
	}
	return guarded(s, graphguard.New(s.ctx, graphguard.Options{Controller: s.name, Prove: s.prover.Prove, Register: register}, graph))
}
