// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stalenessmonitor measures how old every informer's cache is. What it finds is published by
// metrics, the log and the page of package stalenessz.
//
// It promises:
//
//   - The published age is an upper bound: now less the newest time T such that the cache is proven
//     (pkg/freshness) to have everything that the server had at T. It is never guessed: a cache of
//     which nothing is proven has no age.
//   - All caches of the process together cost Rate requests a second on average, at most 2 over any 10 min,
//     however many caches there are. A resource costs at most one request in Period on average.
//   - The age of a cache that protected controllers read (Options.Protected) stays within Bound, if the server
//     answers at once. The other caches share what is left of Rate; Cache.Every says how long after a proof
//     each is asked about again. If the protected caches need more than MaxRate, as when most of them are both
//     large and quiet, their ages grow in proportion.
//   - A cache that needs it is asked about sooner, paid from Burst: a busy one that falls silent, one that is behind,
//     one whose proof is lost.
//   - A proof that somebody else has needed stands in for one of the monitor.
//   - Options.Stalled is called while a cache stays stalled.
//   - A resource whose requests fail backs off and takes none of the turns of others.
//   - The states tell a quiet resource from a stale cache, a watch that holds back from one that lags,
//     and both from an informer whose own queue is behind.
//   - Nothing is kept, asked or published of an informer that is gone, or that nobody uses any more because
//     discovery does not show its resource; nothing is published of a resource that the server does not serve.
//
// # What a proof takes
//
// An empty collection: one fence, since a list that brings nothing is the proof. A busy one: one fence, which the
// cache passes. Another one of up to 100 objects: one list of their metadata, which the cache equals. A larger
// one: a fence and a short watch, which takes 1.7 to 3 s, since kube-apiserver sends the bookmark no sooner. So each is
// asked about 10 to 13 s after its last proof to stay within Bound.
//
// # How soon a stalled watch is noticed
//
// Within 10 s if the resource is busy, whoever reads it: its silence is asked about after 3 s. Otherwise within 20 s
// if protected controllers read the cache, and within Cache.Every and some seconds if not. An age is at most Bound
// above the truth; while a protected cache is known to be behind it is fenced every Period, and its age at most
// Period + 2 s above.
package stalenessmonitor
