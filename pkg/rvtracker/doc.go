// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rvtracker is the shared resource-version tracker of KEP-5647: a
// controller does not reconcile an object before its caches have seen the
// controller's own writes for it.
//
// It promises:
//
//   - EnsureReady returns nil only if every cache that the controller reads has
//     reached every RV that Wrote recorded for the owner, and does not hold
//     alive what Deleted recorded; or the tracker dropped the record for one of the
//     reasons in LabelValues.Dropped, each of which it counts.
//   - The tracker parks an owner that it refuses in one step with the check, and wakes it
//     once the caches have caught up. It loses no owner: a safety timer takes
//     fences (consistent reads), and a wait ends when the cache shows the write, when a
//     fence proves a rewind, or, if nothing can ever be proven, after 5 min (maxWait).
//   - Wakes come from the tracker's goroutine, never from an informer's and never
//     with a lock held. Owners are independent of each other.
//   - All methods may be called concurrently, for one owner too.
//   - Memory follows the writes in flight: the tracker drops a record when the cache passes
//     it, when its owner is cleared, or when an owner with another UID takes its place.
//
// # RVs that go backward
//
// A store that goes back to a lower RV proves nothing about the server: a relist
// answered by an apiserver that lags looks the same. So the tracker drops no record. Every
// owner that reads the store waits until the store is back where it was, or is proven to have what the server has, within
// OwnerLimits, because a controller may have acted on what the cache showed. The tracker takes a fence at once.
//
// Only a fence proves a rewind (etcd restored): a consistent read below an RV that the
// store had, or that a write or an earlier fence returned, before the read was
// sent. BeginFence notes those RVs, because the answer means nothing without them: a
// write made after the read was sent may well be above it and belong to the new
// epoch. The tracker drops the records above the fence: RVs that grow past
// them later would not mean that the writes exist. A record that has lower writes as well
// awaits the fence instead, which is past all of them. So does a delete, whose object may exist again.
//
// If the store still shows the time before the rewind, no controller trusts it until a list replaces
// its content, because events that were queued before the rewind may still come. A store below the fence
// is no exception, unless it went back to there since a fence was last consistent: the server may have been restored to
// before that. Owners wait for it within OwnerLimits: for 1 min if no fence of it has succeeded, whatever the error, and else for 5 min.
// Then controllers use the store all the same; Source.Epoch trusts it only once it was fenced and listed. The tracker goes on with fences,
// and asks for the list again, more and more rarely, until it comes.
//
// A store often has the RV of a write already: the event came before the
// response. That satisfies the record at once, unless the store had that RV before the request
// was sent (Sending). Then it cannot be a new RV of the same epoch: the owner waits
// for a fence, and the new write does not pass unseen (upstream's gap 5). An update
// that changes nothing returns an old RV, too: the caller does not record it if the
// store holds the object at just that RV. The tracker cannot detect a rewind after which the server's RV
// grows past all that was known before the first fence.
//
// # Caches of different times
//
// An informer relists when it cannot resume its watch. Then its cache may jump by more than the other caches
// have seen. After a restore of etcd with bumped revisions nothing goes backward: each informer
// receives a 410 and relists on its own. A controller that reads several caches would see a mix of two times.
// So with Options.Prover a relist of one cache has every owner of every controller that reads it wait until
// that controller's other caches are proven as new as the relist. The hold begins before the new content
// can be read. A reconcile that has passed EnsureReady before goes on. The tracker asks for no proof before an owner waits
// for it. Then it asks for one proof at a time for each resource, and for one in 100 ms on average, however many
// relists, controllers and owners need it. First lists hold no owner, and neither does a store that does not report
// relists (a plain Store). If no proof comes within OwnerLimits the owners are reconciled without it,
// and later relists do not hold owners for that cache until a proof of it succeeds; Controller.Unproven names it.
//
// # What cannot be proven
//
// The tracker counts RVs that cannot be compared (KEP-5504: empty, zero, not a number), and
// ignores them otherwise: they neither erase nor satisfy a record. A fence that
// fails proves nothing: owners go on waiting for what a watch may still bring, their
// own writes. For a store that went back, and for what only fences and lists can settle after a rewind, they wait
// within OwnerLimits, because a server may refuse reads without end and take writes. When no proof can ever come (no Fencer and no calls of
// ObserveFence, or ErrUnprovable), or none has come of a store that is used though it may predate a rewind, owners are let
// go after 5 min (maxWait) and get what upstream would give them.
package rvtracker
