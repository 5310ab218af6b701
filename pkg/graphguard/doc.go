// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graphguard tells a controller that builds a graph of owners and dependents from the events of many resources whether
// all dependents of an owner are in it. The garbage collector must know before it takes a finalizer off a deleted owner:
// a dependent that it has not seen is deleted afterwards.
//
// It promises:
//
//   - Proven is true only if each resource that may have dependents was proven as new as the server was when Proven was
//     first called for the owner, the graph has received all that the informer had at that proof, and has handled it; or
//     if a resource could not be proven for so long that the owner goes on without a proof, which is logged.
//   - No owner waits without limit, and none occupies a worker. A resource that cannot be proven delays only owners that may have
//     dependents of it: for 5 min if its cache was shown to be stale, and for 1 min if nothing is known. For a custom resource these
//     are 1 min and 10 s; while nothing is known, all owners together wait for those 10 s. A cache about which nothing is known
//     any more still counts as stale for owners that came less than the longer time after it was last shown to be stale.
//   - Each resource is proven at most once in 2 s, whatever the number of owners, and 30 custom resources
//     a second.
//   - If a relist shows an object under the name of one that is gone, the graph gets a deletion and an addition.
//   - After a relist, what the graph remembers as absent is not used until the graph has received the new content: a restored
//     etcd may have it again.
package graphguard
