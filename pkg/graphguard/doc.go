// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graphguard tells a controller that builds a graph of owners and dependents from the events of many resources whether
// all dependents of an owner are in it. The garbage collector must know before it takes a finalizer off a deleted owner:
// a dependent that it has not seen is deleted afterwards.
//
// It promises:
//
//   - Proven is true only if each resource that may have dependents was proven as new as the server was when Proven was
//     first called for the owner, what the informer had by then was handed to the graph, and the graph has worked it off; or
//     if a resource could not be proven for so long that the owner goes on without, which the log says.
//   - No owner waits without limit, and none holds a worker. A resource that cannot be proven holds up only owners that may have
//     dependents of it: for 5 min if its cache is shown to be stale, and 1 min if nothing can be told. A custom resource does for
//     1 min and 10 s; while nothing can be told of it, all owners together for those 10 s. A cache of which nothing can be told
//     any more still counts as stale for owners that came less than the longer time after it was last shown to be, by whoever asked.
//   - Each resource is proven at most once in 2 s, whatever the number of owners. Custom resources are asked
//     about at 30 a second.
//   - An object that a relist shows under the name of one that is gone is told to the graph as gone and come.
//   - What is remembered as absent is not used from a relist on until the graph has what it has brought: a restored
//     etcd may have it again.
package graphguard
