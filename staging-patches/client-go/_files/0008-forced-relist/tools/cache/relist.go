// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"sync"
)

// RelistReflectors makes every reflector that runs in the process relist, by a consistent read,
// whatever it is doing: a watch ends, and a backoff too. Stores and handlers keep what they have until
// the list replaces it, and handlers are told the difference, as after any other relist. A list that
// fails is tried again with the reflector's backoff, and stays a consistent read until one succeeds.
//
// It is for who knows that the server's resource versions went backward, as when etcd was restored: a
// watch that is resumed at a resource version of the future is not refused by the server, and tells
// nothing until that version is passed.
//
// It does not wait. It returns how many reflectors were told. A reflector that starts later is not.
func RelistReflectors() int {
	runningReflectors.lock.Lock()
	defer runningReflectors.lock.Unlock()
	for _, cancel := range runningReflectors.cancels {
		cancel()
	}
	return len(runningReflectors.cancels)
}

// runningReflectors can end what each running reflector does now.
var runningReflectors = struct {
	lock    sync.Mutex
	cancels map[*Reflector]context.CancelFunc
}{cancels: map[*Reflector]context.CancelFunc{}}

// untilRelist returns a context that ends with ctx or when a relist is asked for. end must be called.
func (r *Reflector) untilRelist(ctx context.Context) (relistable context.Context, end func()) {
	relistable, cancel := context.WithCancel(ctx)
	runningReflectors.lock.Lock()
	defer runningReflectors.lock.Unlock()
	runningReflectors.cancels[r] = cancel
	return relistable, func() {
		runningReflectors.lock.Lock()
		defer runningReflectors.lock.Unlock()
		delete(runningReflectors.cancels, r)
		cancel()
	}
}
