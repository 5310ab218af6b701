// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import "time"

// For so long at most a value that is published, such as what a quota has used, is held back, and an owner waits for the proof at
// the start of leadership or for the outcome of a write: what never changes does as much harm as what is done on a stale cache, and
// a server may refuse proofs without end and take writes all the same. Then they go on as upstream's; disruptive actions still need
// the proof.
const (
	// heldUnknown is while it is not known whether the cache is stale, heldStale while it was shown to be.
	heldUnknown = time.Minute
	heldStale   = 5 * time.Minute
)
