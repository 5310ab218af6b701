// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fence is a consistent read of a collection's RV.
type Fence struct {
	// ResourceVersion of the collection: the server was at it at TakenAt or later.
	ResourceVersion string
	// TakenAt is the local time just before the request was sent.
	TakenAt time.Time
	// Epoch of the cache's source to which the answer belongs: RVs of two epochs cannot be compared.
	Epoch uint64
}

// Outcome of a proof.
type Outcome string

const (
	// Proven: the cache has everything that the server had committed at Proof.At.
	Proven Outcome = "Proven"
	// Stale: the cache lacks changes that the server has committed.
	Stale Outcome = "Stale"
	// Unknown: neither could be shown.
	Unknown Outcome = "Unknown"
)

// How a proof was found.
const (
	// methodEarlier: it was proven already; no request was made for it.
	methodEarlier = "Earlier"
	// methodFence: the cache had passed a fence when its answer came.
	methodFence = "Fence"
	// methodWait: the cache passed the fence while it was waited for.
	methodWait = "Wait"
	// methodList: a metadata list was compared with the cache.
	methodList = "List"
	// methodWatch: a metadata watch showed what was missing, or that nothing was.
	methodWatch = "Watch"
)

// Reason of an Unknown outcome, or of a fence that failed.
type Reason string

const (
	// ReasonNoServer: no connection, or it broke.
	ReasonNoServer Reason = "NoServer"
	// ReasonTimeout: no answer in time, from the server or within the caller's context.
	ReasonTimeout Reason = "Timeout"
	// reasonThrottled: the server said 429. See RetryAfter.
	reasonThrottled Reason = "Throttled"
	// reasonTooLargeRV: the server said 504, it has not seen the RV yet. See RetryAfter.
	reasonTooLargeRV Reason = "TooLargeRV"
	// reasonGone: the server said 410, its history does not go back to the cache's RV.
	reasonGone Reason = "Gone"
	// ReasonForbidden: the server said 401 or 403.
	ReasonForbidden Reason = "Forbidden"
	// ReasonNotFound: the server does not serve the resource, or not by that verb.
	ReasonNotFound Reason = "NotFound"
	// reasonServerError: any other error that the server answered.
	reasonServerError Reason = "ServerError"
	// ReasonIncomparable: an RV of the server or the cache is not a number.
	ReasonIncomparable Reason = "Incomparable"
	// reasonBudgetSpent: the budget for requests is spent. See RetryAfter.
	reasonBudgetSpent Reason = "BudgetSpent"
	// reasonNoBookmark: the watch ended without a bookmark at the fence.
	reasonNoBookmark Reason = "NoBookmark"
	// ReasonRewind: the server's RVs went backward and the cache has not relisted yet.
	ReasonRewind Reason = "Rewind"
	// ReasonRegressed: the cache went back to an older RV during the proof.
	ReasonRegressed Reason = "Regressed"
	// ReasonNotSynced: the cache has no RV yet.
	ReasonNotSynced Reason = "NotSynced"
	// ReasonTooMany: the collection has become too large for a list proof meanwhile.
	ReasonTooMany Reason = "TooMany"
	// reasonInFuture: asOf is after now; no read could have been made since.
	reasonInFuture Reason = "InFuture"
	// ReasonNotRegistered: no cache was registered for the resource.
	ReasonNotRegistered Reason = "NotRegistered"
	// reasonClosed: the prover was closed.
	reasonClosed Reason = "Closed"
)

// Proof is the answer of Prover.Prove. The zero value proves nothing.
type Proof struct {
	Resource schema.GroupVersionResource
	Outcome  Outcome
	Method   string // how it was found

	// At, if Proven: the cache is as new as the server was then. If Stale: the server
	// had the missing changes then or before.
	At time.Time
	// ResourceVersion, if Proven: the RV that a cache, or an event handler, must have
	// passed for the proof to be valid for it. The registered cache has. If Stale: the lowest
	// RV that is known to be missing, above the cache's; do not ask again until the cache has
	// passed it. If Unknown for reasonGone: once the cache has passed it, ask again even before RetryAfter.
	ResourceVersion string
	// Exact, if Proven, is true for a list proof of a cache that stands still: it is valid
	// while the cache stays at just that RV.
	Exact bool

	// Ahead, if Proven by a watch, is the RV of a change after At that the watch has shown, and
	// that the cache should show a moment later. It may be empty.
	Ahead string

	// Events, if Stale, is how many changes (methodWatch) or objects (methodList) are
	// missing, at least.
	Events int
	// Lost, if Stale, says that by a list the cache lacks a change that it has passed: no watch will bring it.
	Lost bool
	// RVs, if Stale, is how far the cache's RV is behind the server's, in changes to any
	// resource; 0 if they do not fit in 64 bits.
	RVs uint64
	// AtLeast, if Stale, is a lower bound on the age of the cache: it has lacked
	// something for that time.
	AtLeast time.Duration

	// Reason, if Unknown.
	Reason Reason
	// RetryAfter, if Unknown, is how long to wait before asking again; 0 if not known.
	RetryAfter time.Duration
	// Err, if Unknown, is the cause. It may be nil.
	Err error
	// StaleAt, if Unknown, is when the cache was last shown to lack a change that it has not passed since: it is stale, whatever the
	// server has now. Zero: not known.
	StaleAt time.Time
}

// Took is how long the server has taken for a proof that has come now and was asked for then: 0 if it was the cache that had to catch up.
func (p Proof) Took(asked time.Time) time.Duration {
	if p.Method == methodWait {
		return 0
	}
	return time.Since(asked)
}

// Fresh is true only if the outcome is Proven.
func (p Proof) Fresh() bool { return p.Outcome == Proven }

// hopelessAfter is for how long a 403 or 401 may come from an apiserver that has just started and has not read its
// roles yet.
const hopelessAfter = 30 * time.Second

// ByWatch is true for a stale cache if a watch has brought what it lacks, or what came after that: then events flow, and those of the cache's
// own watch are held back on their way. A list shows the same where the server's watches bring nothing to anybody.
func (p Proof) ByWatch() bool { return p.Outcome == Stale && p.Method == methodWatch }

// Hopeless reports that asking again will not help, for a proof that was first asked for at asked.
func (p Proof) Hopeless(asked time.Time) bool {
	if p.Outcome != Unknown {
		return false
	}
	switch p.Reason {
	case ReasonNotFound, ReasonIncomparable, ReasonNotRegistered:
		return true
	case ReasonForbidden:
		return time.Since(asked) >= hopelessAfter
	}
	return false
}

// String is for logs.
func (p Proof) String() string {
	switch p.Outcome {
	case Proven:
		return fmt.Sprintf("%s proven by %s", p.Resource.GroupResource(), p.Method)
	case Stale:
		return fmt.Sprintf("%s stale by %d changes or %d RVs, for at least %s", p.Resource.GroupResource(), p.Events, p.RVs, p.AtLeast)
	}
	return fmt.Sprintf("%s unknown (%s): %v", p.Resource.GroupResource(), p.Reason, p.Err)
}

// errNotRegistered is wrapped when a resource has no cache registered.
var errNotRegistered = errors.New("no cache registered")

// Error is the error of a fence. It says nothing about the cache.
type Error struct {
	Resource schema.GroupVersionResource
	Reason   Reason
	// RetryAfter is how long to wait before asking again; 0 if not known.
	RetryAfter time.Duration
	Err        error
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("fence of %s: %s: %v", e.Resource.GroupResource(), e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// failure is the end of a request that shows nothing.
type failure struct {
	reason     Reason
	retryAfter time.Duration
	err        error
	// awaits, unless empty, is the RV of the store at which to ask again, however soon that is.
	awaits string
	// refusal is true if the server refused, or failed, to answer for the resource.
	refusal bool
	// overload is true for a rejection by API Priority and Fairness, of the priority level with the UID level.
	overload bool
	level    string
	// again is true for an earlier failure that took the place of a request.
	again bool
}

func (f *failure) proof(gvr schema.GroupVersionResource) Proof {
	return Proof{Resource: gvr, Outcome: Unknown, Reason: f.reason, RetryAfter: f.retryAfter, Err: f.err, ResourceVersion: f.awaits}
}
