// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "time"

// Limits are for how long at most a proof is waited for, and then done without: what never changes does as much harm as what is
// done on a stale cache, and a server may refuse proofs for ever and take writes all the same.
type Limits struct {
	// Unknown is while it is not known whether the cache is stale, Stale once it was shown to be.
	Unknown, Stale time.Duration
}

var (
	// OwnerLimits are for an owner that is not reconciled, and for a value that is published, such as what a quota has used.
	// Disruptive actions need the proof after that all the same.
	OwnerLimits = Limits{Unknown: time.Minute, Stale: 5 * time.Minute}
	// FirstValueLimits are for a value that there is none of yet.
	FirstValueLimits = Limits{Unknown: 10 * time.Second, Stale: 10 * time.Second}
	// StartLimits are for a controller that starts as a whole, counted from the first list of the cache.
	StartLimits = Limits{Unknown: 10 * time.Second, Stale: time.Minute}
)

// Of is the limit for a cache that was shown to be stale, or not.
func (l Limits) Of(stale bool) time.Duration {
	if stale {
		return l.Stale
	}
	return l.Unknown
}
