// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stalenessmonitor measures how old every informer's cache is. Metrics, the log and the page of package
// stalenessz publish what it finds.
//
// It promises:
//
//   - The published age is an upper bound: the time since the newest T as of which the cache is proven
//     (pkg/freshness) to have everything that the server had. It is never guessed: a cache without a
//     proof has no age.
//   - All caches of the process together cost Rate requests a second on average, at most 2 over any 10 min,
//     however many caches there are. A resource costs at most one request in Period on average.
//   - The age of a cache that protected controllers read (Options.Protected) stays within Bound, if the server
//     answers at once. The other caches share the rest of Rate; Cache.Every says how long after a proof
//     the monitor probes each again. If the protected caches need more than MaxRate, as when most of them are both
//     large and quiet, their ages grow in proportion.
//   - The monitor probes a cache sooner, paid from Burst, if it needs that: a busy one that falls silent, one that is behind,
//     one whose proof is lost.
//   - A proof that a controller needed takes the place of a probe.
//   - Options.Stalled is called while a cache stays stalled.
//   - A resource whose requests fail backs off and takes no turns of others.
//   - The states distinguish a quiet resource from a stale cache, a stalled watch from one that lags,
//     and both from an informer whose own queue is behind.
//   - The monitor keeps, asks and publishes nothing about an informer that is gone, or that is not used any more because
//     discovery does not show its resource; it publishes nothing about a resource that the server does not serve.
//
// # What a proof takes
//
// An empty collection takes one fence, since an empty list is the proof. A busy one takes one fence, which the
// cache passes. Another one of up to 100 objects takes one list of their metadata, which the cache equals. A larger
// one takes a fence and a short watch, which takes 1.7 to 3 s, since kube-apiserver sends the bookmark no sooner. So the monitor
// probes each 10 to 13 s after its last proof, to stay within Bound.
//
// # How soon a stalled watch is noticed
//
// Within 10 s if the resource is busy, because the monitor probes it after 3 s of silence. Otherwise within 20 s
// if protected controllers read the cache, and within Cache.Every and some seconds if not. An age is at most Bound
// above the truth. While a protected cache is known to be behind, the monitor takes a fence every Period, and the age is at most
// Period + 2 s above the truth.
package stalenessmonitor
