// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// doubt is why a source is not trusted though nothing is known against it: the server was rewound, as
// another source shows, and both are of one etcd as a rule. The zero value is no doubt.
type doubt struct {
	since  time.Time
	at     version // what the store showed when it was doubted
	seq    uint32  // number of fences begun by then
	fenced bool    // a fence begun since has proved no rewind
	self   bool    // it is about the store's own list (relistedAhead)
}

const (
	// minSpreadInterval and maxSpreadInterval bound how soon all caches are relisted once more, and those of one
	// resource. The interval doubles, and is the least again after twice the longest.
	minSpreadInterval = 5 * time.Second
	maxSpreadInterval = 5 * time.Minute
	// confirmInterval is how often core resources are asked because of rewinds of others.
	askCoresEvery = 10 * time.Second
	// confirmers is how many core resources are asked.
	coresAtOnce = 2
)

// pace spaces relists.
type pace struct {
	next     time.Time
	interval time.Duration
}

// take reports whether another one may begin now, and if so counts it.
func (p *pace) take(now time.Time) bool {
	if now.Before(p.next) {
		return false
	}
	if p.interval *= 2; now.Sub(p.next) > 2*maxSpreadInterval {
		p.interval = 0
	}
	p.interval = min(max(p.interval, minSpreadInterval), maxSpreadInterval)
	p.next = now.Add(p.interval)
	return true
}

// core says that only kube-apiserver serves the resource, from its main etcd.
func core(resource schema.GroupResource) bool {
	return resource.Group == "" && resource.Resource != "events"
}

// ofAll says that a rewind of the resource is taken for one of all: it is in the core resources' etcd as a rule. Others may
// have a history of their own: behind an APIService, or, as events often, in another etcd.
func (t *Tracker) ofAll(resource schema.GroupResource) bool {
	return core(resource) || resource.Resource != "events" && t.opts.SameStore != nil && t.opts.SameStore(resource)
}

// rewound: s was rewound. If that may be of s alone, it has to be confirmed by a core resource before it spreads. Where s is in
// the core resources' etcd as a rule that would be too late: whoever waited for s is free now, and reads others.
func (t *Tracker) rewound(s *Source, now time.Time) {
	if t.opts.OnRewind == nil {
		return
	}
	if t.ofAll(s.resource) || !slices.ContainsFunc(t.sources, func(s *Source) bool { return core(s.resource) }) {
		t.spread(s, now)
		return
	}
	if t.opts.OnRewindOf != nil && s.relists.take(now) {
		t.call(func(error) { t.opts.OnRewindOf(s.resource) }, nil)
	}
	t.askCores(now)
}

// confirm asks those core resources that know most of the server whether they were rewound, too.
func (t *Tracker) askCores(now time.Time) {
	if now.Sub(t.coresAsked) < askCoresEvery && !t.coresAsked.IsZero() {
		return
	}
	t.coresAsked = now
	cores := slices.DeleteFunc(slices.Clone(t.sources), func(s *Source) bool { return !core(s.resource) })
	slices.SortStableFunc(cores, func(a, b *Source) int {
		return maxVersion(b.live, b.pos()).compare(maxVersion(a.live, a.pos()))
	})
	for _, s := range cores[:min(len(cores), coresAtOnce)] {
		s.askFence()
	}
}

// spread has every other source doubted, and asks for all caches to be relisted. Who is freed by the
// rewind is woken after this, and finds the doubts; but not if it is too soon after the last one, when both come later.
func (t *Tracker) spread(from *Source, now time.Time) {
	if t.opts.OnRewind == nil {
		return
	}
	if t.spreadDue = !t.spreads.take(now); t.spreadDue {
		return // A tick does it.
	}
	for _, s := range t.sources {
		if s == from || s.outdated {
			continue
		}
		s.beDoubted(false)
		s.settleLocked()
		s.setGate()
	}
	t.call(func(error) { t.opts.OnRewind() }, nil)
}

// beDoubted begins a doubt: about all that the store shows, or, if it was relisted, about that list.
func (s *Source) beDoubted(relisted bool) {
	now := s.t.opts.clock.Now()
	s.doubted, s.replaced, s.trustedAnyway = true, relisted, false
	s.doubt = doubt{since: now, at: s.pos(), seq: s.t.fenceSeq, self: relisted}
	s.relistDue = now.Add(recheck)
	s.askFence()
}

// trust ends the doubt if a fence has proved no rewind, and the content was replaced since. A store that does not tell of
// that has to move, or is trusted after a while: it may be that of a quiet resource in an etcd of its own.
func (s *Source) trust() {
	if s.doubted && s.doubt.fenced &&
		(s.renewed(s.doubt.at) || !s.reportsLists && s.t.opts.clock.Since(s.doubt.since) >= recheck) {
		s.endDoubt()
	}
}

func (s *Source) endDoubt() {
	if s.doubted {
		s.doubted, s.doubt, s.replaced, s.trustedAnyway = false, doubt{}, false, false
	}
}

// relistAgain asks for the list that is waited for, if it was asked for long ago: that may have come to nothing, or not been done, as it
// was too soon after another.
func (s *Source) relistAgain(now time.Time) {
	waits := s.outdated || s.doubted && !s.doubt.self
	if s.t.opts.OnRewindOf == nil || !waits || now.Before(s.relistDue) || !s.relists.take(now) {
		return
	}
	s.relistDue = now.Add(recheck)
	s.t.call(func(error) { s.t.opts.OnRewindOf(s.resource) }, nil)
}
