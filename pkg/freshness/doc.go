// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freshness answers one question: is my cache of this resource as new as
// the server was at time T?
//
// A fence is a consistent read of a collection's RV (LIST, limit=1, metadata only,
// without resourceVersion), taken at a time noted before it was sent. A proof is a
// fence that the cache has passed. One proof answers for all objects at once.
//
// It promises:
//
//   - A Proof with Outcome Proven means: every change of the resource that the server
//     had committed at Proof.At, which is not before the asOf asked for, is in the
//     cache. It is never given on an error, a 429, or RVs that cannot be compared.
//   - Stale means: changes that the server had committed are shown to be missing.
//   - Everything else is Unknown, with a Reason, and means neither.
//   - What is proven already costs no request. Otherwise one fence per resource is in
//     flight, shared by all callers that asked for a time before it was sent; and one quiet
//     proof. All waits are bounded, and the end of a caller's context ends nothing for the others.
//   - Requests come from a budget, a user agent and a connection of their own. If requests for built-in resources are lost and none of any
//     resource has succeeded for 5 s, the next ones go by a new connection. That is done 5 s after the last time at the earliest, and once in a
//     minute while nothing is answered.
//   - A resource that the server refuses, with whatever Retry-After, delays its own requests alone, for longer the longer
//     that lasts, and such resources together have a third of the budget and 32 requests in flight.
//     Only a rejection by API Priority and Fairness delays all requests of its priority level, for 2 s at most.
//   - The prover reads a limited number of bytes and pages of an answer, for a limited time. The text of errors is one line
//     without control characters, whatever the server said.
//   - All methods may be called concurrently. After Close no goroutine is left.
//
// # The quiet resource
//
// RVs are etcd's, common to all resources. The store of a resource in which nothing
// happens stands still while fences move on, without anything being missing. If a
// busy cache does not pass the fence within 250 ms, a quiet proof decides:
//
//   - A small collection is listed (metadata, paged, consistent) and compared with the
//     store, which must not move meanwhile. Sound if each item listed is in the store
//     with its UID and either the RV listed or one past the list's, and each item that
//     only the store has is past the list's RV: the store then has each object
//     as listed or newer. An item that the store lacks counts as missing, since a store that had
//     seen its deletion would have passed the list's RV. An object made and deleted
//     within the lag is in neither, so the proof holds only while the store stands
//     still (Proof.Exact).
//   - Otherwise a metadata watch from the store's RV is followed until a bookmark or an
//     event shows that all events up to the fence were sent. If the store has passed
//     the last of them, nothing is missing. kube-apiserver sends the bookmark only after
//     a fence, and 1.7 s after it.
//
// # RVs that go backward
//
// The cache's rvtracker.Source alone judges whether the server's RVs went backward (etcd restored), and whether the cache has relisted
// since: it notes what is known before a fence is sent, and gets each answer first. Fences and proofs are of one
// epoch of the source. They are void in the next epoch, and when the source does not trust the cache, as after a rewind of another
// resource. Until the source trusts it again the cache may show a history that does not exist any more, and proves nothing, unless it
// equals a list that it is not past.
//
// # What a cache must be
//
// The whole collection, unfiltered, with RVs that are updated in one step with the
// objects: an informer's store with client-go's AtomicFIFO, without which the RV is
// empty and the reason is NotSynced.
package freshness
