// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// queueDelay is what a controller's queue waits after a failure, and so many before it.
func queueDelay(failures int) time.Duration { return min(statusRetry<<min(failures, 20), longestPause) }

// comeback is of who comes back by itself after a failure: after so long, and each further time after twice as long, up to longestPause. The store's mu
// guards it.
type comeback struct {
	after   time.Duration // the next
	waits   time.Duration // of the one that is pending
	from    time.Time     // of the first failure, if that is what a new one is told by
	at      time.Time     // of the last failure, also one that something else has caused
	pending bool
}

// comeBack notes a failure, and has back called when the last one is c.after ago, unless that is pending. It is not called once the term of
// leadership has ended. mu must be held.
func (s *Store) comeBack(c *comeback, back func()) {
	c.at = time.Now()
	if c.pending {
		return
	}
	c.pending = true
	after := c.after
	c.waits = after
	c.after = min(2*after, longestPause)
	go func() {
		for left := after; left > 0; {
			if !s.sleep(left) {
				return
			}
			s.mu.Lock()
			left = time.Until(c.at.Add(after))
			s.mu.Unlock()
		}
		s.mu.Lock()
		c.pending = false
		s.mu.Unlock()
		back()
	}()
}

// backsOff reports whether a failure of an owner may leave it on the controller's queue for longer than a minute: those of Jobs and autoscalers may not.
func (s *Store) backsOff() bool {
	switch s.name {
	case daemonSetStore, statefulSetStore, deploymentStore, replicaSetStore, replicationControllerStore, cronJob:
		return true
	}
	return false
}

// comeBackFailing has an owner of which writes fail come back when it has not been tried for long enough. On stock a fault of a minute can leave a status wrong for a quarter of an
// hour after it, and that of a Deployment, which its queue gives up, until something changes.
func (s *Store) comeBackFailing(owner types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var from time.Time
	s.refusals.with(owner, func(of *refusal) { from = of.from })
	c, after := s.comebacks[owner], s.refusals.comeback(owner)
	if c == nil || !c.from.Equal(from) && c.waits > after { // What is pending since before a write succeeded may be due long after these.
		c = &comeback{}
		s.comebacks[owner] = c
	}
	c.from, c.after = from, after
	s.comeBack(c, func() {
		s.mu.Lock()
		waits := s.comebacks[owner] == c // Else it is gone.
		if waits {
			delete(s.comebacks, owner)
		}
		s.mu.Unlock()
		if waits && s.refusals.open(owner) {
			s.refusals.looks(owner) // A CronJob is left to its queue's backoff no longer.
			s.wakeAction(owner)
		}
	})
}
