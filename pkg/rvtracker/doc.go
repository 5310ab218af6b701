// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rvtracker is the shared resource-version tracker of KEP-5647: a
// controller does not reconcile an object before its caches have seen the
// controller's own writes for it.
//
// It promises:
//
//   - EnsureReady returns nil only if every cache that the controller reads has
//     reached every RV that WroteAt recorded for the owner, and no longer holds
//     alive what Deleted recorded; or the record was dropped for one of the
//     reasons of the Outcome constants, each of which is counted.
//   - An owner that is refused is parked in one step with the check, and woken
//     once the caches have caught up. It is never lost: a safety timer takes
//     fences (consistent reads), and a wait ends by being seen, by a proven
//     rewind, or, if nothing can ever be proven, after Options.MaxWait.
//   - Wakes come from the tracker's goroutine, never from an informer's and never
//     with a lock held. Owners are independent of each other.
//   - All methods may be called concurrently, for one owner too.
//   - Memory follows the writes in flight: a record dies when the cache passes
//     it, when its owner is cleared or replaced by one of another UID.
//
// # RVs that go backward
//
// A store that goes back to a lower RV proves nothing about the server: a relist
// answered by an apiserver that lags looks the same. So it drops no record. Every
// owner that reads the store waits until the store is back where it was (what a
// cache showed may already have been acted on), and a fence is asked for at once.
//
// Only a fence proves a rewind (etcd restored): a consistent read below an RV that
// the store had, or that a write or an earlier fence returned, before the read was
// sent. BeginFence notes those, because the answer means nothing without them: a
// write made after the read was sent may well be above it and belongs to the new
// epoch. Records above the fence are dropped at that moment, since RVs growing past
// them later would not mean that the writes exist. Where there are lower writes on
// the same record, it awaits the fence instead, which is past all of them; so does
// a delete, whose object may have come back to life. If the store still shows the
// time before the rewind, nobody may trust it until a list replaces its content: events
// that were queued before the rewind may still come. A store below the fence is no exception, unless it went
// back to there since a fence was last consistent: the server may have been restored to before that. If the server answers fences for
// Options.MaxWait and no list comes, owners go on with the store all the same; Source.Epoch trusts it only once it was listed. The
// list is asked for again, more and more rarely.
//
// A write whose RV the store already has is normal: the event came before the
// response. It is satisfied at once, unless the store had that RV before the request
// was sent (Sending): then it cannot be a new RV of the same epoch, the owner waits
// for a fence, and the new write does not pass unseen (upstream's gap 5). An update
// that changes nothing returns an old RV too: whoever records it leaves it out if the
// store holds the object at just that RV. A rewind after which the live RV has grown
// past all that was known before anybody asked cannot be told from no rewind at all.
//
// # Caches of different times
//
// An informer relists when it cannot resume its watch, and then the world may have jumped by more than the
// others have seen: after a restore of etcd with bumped revisions nothing goes backward, and each informer
// is told 410 and relists on its own. Who reads them together sees a mix of two times, which never was.
// So with Options.Prover a relist of one cache has every owner of every controller that reads it wait until
// that controller's other caches are proven as new as the relist. The hold is in place before the new content
// can be read. What had passed EnsureReady by then goes on. Nothing is proven before somebody waits for it;
// then there is one proof per resource under way, and one in 100 ms on average, whatever number of relists,
// controllers and owners it is for. First lists hold nobody, and neither does a store that does not tell of
// relists (a plain Store). If no proof comes within Options.MaxRelistHold the owners are reconciled without it,
// and later relists hold nobody on account of that cache until a proof of it succeeds; Controller.Unproven names it.
//
// # What cannot be proven
//
// RVs that cannot be compared (KEP-5504: empty, zero, not a number) are counted
// and otherwise ignored: they neither erase nor satisfy a record. A fence that
// fails leaves everything as it is, since a server that does not answer takes no
// writes either. When no proof can ever come (no Fencer and nobody calls
// ObserveFence, or ErrUnprovable) owners are let go after Options.MaxWait and get
// what upstream would give them.
package rvtracker
