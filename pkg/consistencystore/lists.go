// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// lists notes when an event handler has been told all of a list that replaced what a cache had.
type lists struct {
	do func()

	mu sync.Mutex
	// last is the resource version of a list that the handler has not been told all of; empty: none.
	last string
}

// AfterLists implements what consistency.AfterLists asks for. The first list of a cache replaces nothing.
func (s *Store) AfterLists(c cache.Store, do func()) (bookmark func(resourceVersion string)) {
	observed, ok := c.(cache.ResourceVersionObservable)
	if !ok || !s.Proves() {
		return nil
	}
	l := &lists{do: do}
	observed.AddReplaceObserver(func(rv string) {
		if c.LastStoreSyncResourceVersion() != "" {
			l.replaced(rv)
		}
	})
	return l.bookmark
}

func (l *lists) replaced(rv string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = rv
}

// bookmark is the handler's BookmarkFunc. The handler is told of a list's objects in any order, and of its resource version after all of them.
func (l *lists) bookmark(rv string) {
	l.mu.Lock()
	told := rv != "" && rv == l.last
	if told {
		l.last = ""
	}
	l.mu.Unlock()
	if told {
		l.do()
	}
}
