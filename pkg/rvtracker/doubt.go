// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import "time"

// doubt is why a source is not trusted though nothing is known against it: the server was rewound, as
// another source shows, and both are of one etcd as a rule. The zero value is no doubt.
type doubt struct {
	since  time.Time
	at     version // what the store showed when it was doubted
	seq    uint32  // number of fences begun by then
	fenced bool    // a fence begun since has proved no rewind
	self   bool    // it is about the store's own list (relistedAhead)
}

// outsideInterval is how far apart two rewinds that Rewound is told of have to be, to be taken for two: the
// same one is found for every resource that is looked at.
const outsideInterval = time.Minute

// Rewound tells that the server was rewound, proven by a resource that the tracker does not follow. It has
// the effect of a rewind that the tracker has proved (Options.OnRewind).
func (t *Tracker) Rewound() {
	now := t.opts.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.opts.OnRewind != nil && (t.lastSpread.IsZero() || now.Sub(t.lastSpread) >= outsideInterval) {
		t.spread(nil, now)
	}
}

// spread has every other source doubted, and asks for all caches to be listed anew. Who is freed by the
// rewind is woken after this, and finds the doubts.
func (t *Tracker) spread(from *Source, now time.Time) {
	if t.opts.OnRewind == nil {
		return
	}
	t.lastSpread = now
	for _, s := range t.sources {
		if s == from || s.held {
			continue
		}
		s.beDoubted(false)
		s.settleLocked()
		s.setGate()
	}
	t.call(func(error) { t.opts.OnRewind() }, nil)
}

// beDoubted begins a doubt: about all that the store shows, or, if it was listed anew, about that list.
func (s *Source) beDoubted(relisted bool) {
	s.doubted, s.replaced = true, relisted
	s.doubt = doubt{since: s.t.opts.Clock.Now(), at: s.pos(), seq: s.t.fenceSeq, self: relisted}
	s.askFence()
}

// trust ends the doubt if a fence has proved no rewind, and the content was replaced since. A store that does not tell of
// that has to move, or is trusted after a while: it may be that of a quiet resource in an etcd of its own.
func (s *Source) trust() {
	if s.doubted && s.doubt.fenced &&
		(s.renewed(s.doubt.at) || !s.tellsReplace && s.t.opts.Clock.Since(s.doubt.since) >= s.t.opts.Recheck) {
		s.endDoubt()
	}
}

func (s *Source) endDoubt() { s.doubted, s.doubt, s.replaced = false, doubt{}, false }
