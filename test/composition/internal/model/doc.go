// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model is an apiserver in memory, for tests on virtual time: an http.RoundTripper over one store with one
// counter of resource versions for all resources, as etcd has. It serves what kube-controller-manager asks for: get,
// list, watch with bookmarks and initial events, create, update, patch and delete, with metadata-only answers, status
// subresources, preconditions and optimistic locking. It needs no goroutine of its own.
package model
