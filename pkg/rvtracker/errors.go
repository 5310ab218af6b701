// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnprovable is wrapped by the error of a Fencer if asking again will not
// help: the read is forbidden, or the server's RVs cannot be compared. A waiting
// owner is then let go after maxWait. Any other error of a Fencer counts
// as temporary, and the owner goes on waiting; after a rewind within OwnerLimits.
var ErrUnprovable = errors.New("live resource version cannot be proven")

// errRewound is returned to a waiter whose RV will not come, because the
// server's RVs went backward.
var errRewound = errors.New("resource versions went backward")

// errOutdated is returned for the answer to a fence that came too late to prove anything.
var errOutdated = errors.New("the answer is from before resource versions went backward, or of a store that is no longer registered")

// errUnregistered is returned to a waiter whose store was unregistered.
var errUnregistered = errors.New("the store is no longer registered")

// why an owner waits.
type why string

const (
	// whyWrite: the store has not reached an RV that the owner's controller wrote.
	whyWrite why = "Write"
	// whyDelete: the store still holds alive an object that was deleted for the owner.
	whyDelete why = "Delete"
	// whySuspect: a write came back with an RV that the store held before it was sent;
	// a fence has to say whether the server's RVs went backward.
	whySuspect why = "Suspect"
	// whyRegressed: the store went back to an older RV and has not caught up.
	whyRegressed why = "Regressed"
	// whyRelist: the server's RVs went backward, and the store still shows what was before.
	whyRelist why = "Relist"
	// whyDoubt: the RVs of another resource went backward; a fence of this one and a relist have to follow.
	whyDoubt why = "Doubt"
	// whyUnproven: another cache that the controller reads was relisted, and this one is not proven as
	// new as that.
	whyUnproven why = "Unproven"
)

// NotReadyError says what an owner waits for. It is returned by
// Controller.EnsureReady and is immutable.
type NotReadyError struct {
	Wait
	waited time.Duration
	parked bool
}

// Parked is true if the tracker will put the owner back on the queue by itself:
// the caller drops the key. When false (the tracker is not running), the caller
// requeues with backoff, as KEP-5647 does.
func (e *NotReadyError) Parked() bool { return e.parked }

// Error implements error.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("%s of %s: cache of %s at resource version %q waits for %s (for %s)",
		e.Controller, e.Owner, e.Resource, e.SeenRV, e.Awaits(), e.waited)
}
