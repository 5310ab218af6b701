// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package truth records what really happened in a cluster, by watches of its own that go to the apiserver
// directly: it sees neither the faults nor the caches of what is tested.
//
// What it promises:
//
//   - Every change of the recorded resources from Record to Stop is there, in order, with its resource
//     version and the time at which it arrived here. A watch that breaks is resumed where it ended; if
//     that is impossible something was missed, and Err says so instead of leaving a silent gap.
//   - After Sync the record is as new as the moment Sync was called, for every resource.
//   - At returns the state of a collection at any resource version since the beginning.
//
// Resource versions of different resources are compared with each other here. That is right only because
// all of them come from one etcd, which counts them together (etcd's revision); controllers must not do it.
package truth
