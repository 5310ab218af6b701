// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// disruptionStore is the controller of disruption budgets.
const disruptionStore = "disruption"

// ignores reports whether a write that has succeeded is in place of one of the same reading that has failed, as a budget's status that allows no disruption: upstream's controller takes
// that for success (pkg/controller/disruption/disruption.go, failSafe), and tries nothing again until something changes. mu must be held.
func (s *Store) ignores(key string) bool {
	f := s.failed[key]
	if s.name != disruptionStore || f == nil || !f.since || f.left {
		return false
	}
	f.ignored, f.since, f.tries = true, false, 0
	return true
}

// ignored reports whether the object of a value that waits is to be left alone until that is proven, or may be published without a proof: each look in between would have the write
// tried that has failed.
func (s *Store) ignored(owner types.NamespacedName, r *putOff) bool {
	_, stale := s.shownStale(r.resource)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failed[queueKey(owner)]
	return f != nil && f.ignored && !r.forgotten && time.Since(r.since) < rvtracker.OwnerLimits.Of(stale)
}
