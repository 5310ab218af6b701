// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// doubt is why controllers do not trust a source whose own RVs look right: another source has shown that the
// server's RVs went backward, and both are usually in one etcd. The zero value is no doubt.
type doubt struct {
	since  time.Time
	at     version // what the store showed when it was doubted
	seq    uint32  // number of fences begun before that
	fenced bool    // a fence begun since has proved no rewind
	self   bool    // it is about the store's own list (relistedAhead)
}

const (
	// minSpreadInterval and maxSpreadInterval bound how soon all caches, or those of one resource, relist once more.
	// The interval doubles, and starts again at the minimum after twice the maximum without a relist.
	minSpreadInterval = 5 * time.Second
	maxSpreadInterval = 5 * time.Minute
	// askCoresEvery is how often the tracker takes fences of core resources because others were rewound.
	askCoresEvery = 10 * time.Second
	// coresAtOnce is of how many core resources.
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

// ofAll says that a rewind of the resource counts as one of all resources: it is usually in the core resources' etcd. Others may
// have a history of their own: behind an APIService, or in another etcd, as events often are.
func (t *Tracker) ofAll(resource schema.GroupResource) bool {
	return core(resource) || resource.Resource != "events" && t.opts.SameStore != nil && t.opts.SameStore(resource)
}

// rewound: the RVs of s went backward. If that may concern s alone, a fence of a core resource has to show it before it spreads. Where
// s is usually in the core resources' etcd that would be too late: owners that waited for s are free now, and read other caches.
func (t *Tracker) rewound(s *Source, now time.Time) {
	if t.opts.OnRewind == nil {
		return
	}
	if t.ofAll(s.resource) || !slices.ContainsFunc(t.sources, func(s *Source) bool { return core(s.resource) }) {
		t.spread(s, now)
		return
	}
	if t.opts.OnRewindOf != nil && s.relists.take(now) {
		s.askList()
	}
	t.askCores(now)
}

// askCores takes fences of the core resources with the highest RVs, to see whether these went backward, too.
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

// spread doubts every other source, and has all caches relisted. The tracker wakes the owners that the rewind has freed after
// this, so that they find the doubts. If it is too soon after the last time, a tick does both later.
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

// beDoubted begins a doubt: about all that the store shows, or, if it has relisted, about that list.
func (s *Source) beDoubted(relisted bool) {
	now := s.t.opts.clock.Now()
	s.doubted, s.replaced, s.trustedAnyway = true, relisted, false
	s.doubt = doubt{since: now, at: s.pos(), seq: s.t.fenceSeq, self: relisted}
	s.listSince = now
	s.relistDue = now.Add(recheck)
	s.lastFence = time.Time{} // Doubts are spaced, as relists are: the fence is due at once.
	s.askFence()
}

// trust ends the doubt if a fence has proved no rewind, and a list has replaced the content since. A store that does not report
// lists has to move; after a while it is trusted anyway, because it may be that of a quiet resource in an etcd of its own.
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
	waits := s.outdated || s.doubted && !s.renewed(s.doubt.at)
	if s.t.opts.OnRewindOf == nil || !waits || now.Before(s.relistDue) || !s.relists.take(now) {
		return
	}
	s.relistDue = now.Add(recheck)
	s.askList()
}

func (s *Source) askList() {
	since := s.listSince
	s.t.call(func(error) { s.t.opts.OnRewindOf(s.resource, since) }, nil)
}
