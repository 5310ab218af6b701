// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stalenessmonitor measures how old every informer's cache is, and says so in metrics, the log
// and on the page /stalenessz.
//
// It promises:
//
//   - The published age is an upper bound: now less the newest time T such that the cache is proven
//     (pkg/freshness) to have everything that the server had at T. It is never guessed: a cache of
//     which nothing is proven has no age.
//   - Each cache is fenced once in Period, the fences spread over it, never two in flight for one. A
//     cache that passes its fence, for which it is given up to 3 s if it moves, has cost one request of some
//     hundred bytes. One that does not is asked about with one short metadata watch, and then the next
//     fence is left out, so that a resource costs at most one request in Period on average. On top come
//     only the watch that finds a cache behind, once while it stays behind, and that for a busy cache which
//     was late.
//   - A fence that somebody else has needed stands in for the next one of the monitor (Fenced).
//   - Of a cache that is stalled somebody is told who may help (Options.Stalled).
//   - With more than Period/minGap caches the period of each grows, so that a server is never asked
//     more than 40 times a second. It is asked less by a resource whose fences the server refuses.
//   - The states tell a quiet resource from a stale cache, a watch that holds back from one that lags,
//     and both from an informer whose own queue is behind.
//   - Nothing is kept, asked or published of an informer that is gone, or that nobody uses any more because
//     discovery does not show its resource; nothing is published of a resource that the server does not serve.
//
// # The bound
//
// For a busy resource, that is one with an event every second or so, the age is at most Period + 2 s
// above the true age. A quiet resource is proven every second Period, 1.7 to 3 s after the fence,
// since kube-apiserver sends the bookmark no sooner: there it is at most 2 Period + 5 s above, and what the
// server takes to answer. So it is for one whose events come in bursts. The age of an empty collection is
// that of its fence, because a list that brings nothing is the proof.
package stalenessmonitor
