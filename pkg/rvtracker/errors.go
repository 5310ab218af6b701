// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ErrUnprovable is wrapped by a Fencer whose answer will not change by asking
// again: the read is forbidden, or the server's RVs cannot be compared. A waiting
// owner is then let go after Options.MaxWait. Any other error of a Fencer counts
// as temporary, and the owner goes on waiting.
var ErrUnprovable = errors.New("live resource version cannot be proven")

// errRewound is returned to a waiter whose RV will not come, because the
// server's RVs went backward.
var errRewound = errors.New("resource versions went backward")

// errOutdated is returned for the answer to a fence that says nothing any more.
var errOutdated = errors.New("the answer is from before resource versions went backward, or of a store that is no longer registered")

// errUnregistered is returned to a waiter whose store is no longer followed.
var errUnregistered = errors.New("the store is no longer registered")

// Why an owner waits.
type Why string

const (
	// whyWrite: the store has not reached an RV that the owner's controller wrote.
	whyWrite Why = "Write"
	// whyDelete: the store still holds alive an object that was deleted for the owner.
	whyDelete Why = "Delete"
	// whySuspect: a write came back with an RV that the store held before it was sent;
	// a fence has to say whether the server's RVs went backward.
	whySuspect Why = "Suspect"
	// whyRegressed: the store went back to an older RV and has not caught up.
	whyRegressed Why = "Regressed"
	// whyRelist: the server was rewound and the store still holds what was before.
	whyRelist Why = "Relist"
	// whyDoubt: another resource shows that the server was rewound; this one has to be looked at, and its
	// store relisted.
	whyDoubt Why = "Doubt"
	// WhyUnproven: another cache that the controller reads was relisted, and this one is not proven as
	// new as that.
	WhyUnproven Why = "Unproven"
	// WhyUnsettled: the answer to a write was lost, so that its RV is not known. The tracker leaves that to
	// its users.
	WhyUnsettled Why = "Unsettled"
)

// NotReadyError says what an owner waits for. It is returned by
// Controller.EnsureReady and is immutable.
type NotReadyError struct {
	// Controller is the name given to ForController.
	Controller string
	// Owner is the object that must not be reconciled yet.
	Owner types.NamespacedName
	// Resource is the first resource, of possibly several, whose cache is behind.
	Resource schema.GroupResource
	// Why is the kind of wait.
	Why Why
	// AwaitedRV is the RV to be reached; empty if a deletion, a relist or a proof is waited for.
	AwaitedRV string
	// SeenRV is what the store had reached; empty if nothing yet.
	SeenRV string
	// DeletingUID is the object still seen alive, if a deletion is waited for.
	DeletingUID types.UID
	// Waiting is how long the owner has been parked; 0 at the first refusal.
	Waiting time.Duration

	parked bool
}

// Parked is true if the tracker will put the owner back on the queue by itself:
// the caller drops the key. When false (the tracker is not running), the caller
// requeues with backoff, as KEP-5647 does.
func (e *NotReadyError) Parked() bool { return e.parked }

// Error implements error.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("%s of %s: cache of %s at resource version %q waits for %s (for %s)",
		e.Controller, e.Owner, e.Resource, e.SeenRV, e.Why.awaits(e.AwaitedRV, e.DeletingUID), e.Waiting)
}

// Awaits says what has to happen.
func (e *NotReadyError) Awaits() string { return e.Why.awaits(e.AwaitedRV, e.DeletingUID) }

func (w Why) awaits(rv string, deleting types.UID) string {
	switch w {
	case whyDelete:
		return fmt.Sprintf("the deletion of UID %q", deleting)
	case whyRelist:
		return "a relist, because resource versions went backward"
	case whyDoubt:
		return "a relist and a consistent read, because resource versions of another resource went backward"
	case WhyUnproven:
		return "a proof that it is as new as another cache, which was relisted"
	case WhyUnsettled:
		return "a proof as of the write whose answer was lost"
	}
	return fmt.Sprintf("resource version %q", rv)
}
