// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import "time"

// comeback is of who comes back by itself after a failure: after so long, and each further time after twice as long, up to longestPause. The store's mu
// guards it.
type comeback struct {
	after   time.Duration // the next
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
