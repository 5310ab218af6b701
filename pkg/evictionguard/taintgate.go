// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"container/list"
	"context"
	"net/http/httptrace"
	"sync"
	"time"
)

const (
	// maxAtLimiter is how many evictions may wait for the client's rate limiter before no more are begun.
	// With 20 queries a second a request then waits for 2 s, and the limiter never runs dry.
	maxAtLimiter = 40
	// maxAgain is the same for evictions that have failed before: 0.25 s, which is all that they delay a request of others by.
	// It is less than maxAtLimiter, so they begin only if no other waits to begin.
	maxAgain = 5
	// maxLater is how much may be left for when no eviction waits to begin: then the first of it is done all the same.
	maxLater = 1000
	// minPatience is for how long an eviction counts as waiting for the rate limiter at least. After that,
	// and after three times what others have waited, it waits for something else, such as a server that
	// answered "retry after".
	minPatience = 5 * time.Second
)

// stage is where an eviction is that has begun.
type stage int

const (
	// aside: with the guard, or in a wait that says nothing about the rate limiter.
	aside stage = iota
	atLimiter
	atServer
	stages
)

// gate lets evictions begin as fast as the client's rate limiter lets their requests go. Were they all
// begun at once, the last request of each would wait for the first ones of all others, and be sent long
// after the decision. So an eviction begins only if few others wait for the limiter: maxAtLimiter, and
// one more for each that waits for the server. So the limiter is always busy, whatever its rate and
// whatever time the server takes; the last evictions, too, whose requests follow one upon the other, find
// others to share the limiter with. Those that have failed before stand behind all that have not. The zero
// value is ready. All methods may be called concurrently.
type gate struct {
	mu    sync.Mutex
	count [stages]int
	// queue and failed have what begins each eviction that has not begun, the first to begin first; those in failed
	// have failed before.
	queue, failed list.List
	// waited is how long the last request waited for the limiter.
	waited time.Duration
	// later is what is done once no eviction waits to begin but those that have failed before.
	later []func()
}

// flight is an eviction that has begun.
type flight struct {
	gate  *gate
	stage stage
	since time.Time
	timer *time.Timer
}

// enter waits until an eviction may begin, in the order of the calls, but for those that have failed before. The
// caller must leave.
func (g *gate) enter(ctx context.Context, failed bool) (*flight, error) {
	g.mu.Lock()
	f := &flight{gate: g}
	queue, open := &g.queue, g.open()
	if failed {
		queue, open = &g.failed, g.openAgain()
	}
	if queue.Len() == 0 && open {
		f.move(atLimiter)
		g.mu.Unlock()
		return f, nil
	}
	begun := make(chan struct{})
	place := queue.PushBack(func() { f.move(atLimiter); close(begun) })
	g.mu.Unlock()
	select {
	case <-begun:
		return f, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-begun:
		f.move(aside)
	default:
		queue.Remove(place)
	}
	return nil, context.Cause(ctx)
}

// afterwards calls f once no eviction waits to begin but those that have failed before, or maxLater calls after it: what
// costs requests, too, and is less urgent.
func (g *gate) afterwards(f func()) {
	g.mu.Lock()
	g.later = append(g.later, f)
	due := g.due()
	g.mu.Unlock()
	due()
}

// due returns what may be done now, to be called without the mutex. It is held.
func (g *gate) due() func() {
	n := len(g.later)
	if g.queue.Len() > 0 {
		n = max(0, n-maxLater)
	}
	if n == 0 {
		return func() {}
	}
	now := g.later[:n]
	g.later = append([]func(){}, g.later[n:]...)
	return func() {
		for _, f := range now {
			f()
		}
	}
}

// busy reports whether evictions wait to begin that have not failed before.
func (g *gate) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.Len() > 0
}

// open reports whether an eviction may begin, and openAgain whether one that has failed before may. The mutex is held.
func (g *gate) open() bool { return g.count[atLimiter] < maxAtLimiter+g.count[atServer] }

func (g *gate) openAgain() bool { return g.count[atLimiter] < maxAgain }

// leave ends the flight.
func (f *flight) leave() { f.to(aside) }

// context is one for the requests of the eviction, which tells where they are.
func (f *flight) context(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { f.to(atServer) },
		GotFirstResponseByte: func() { f.to(atLimiter) },
	})
}

// to notes where the eviction is now.
func (f *flight) to(s stage) {
	f.gate.mu.Lock()
	f.move(s)
	due := f.gate.due()
	f.gate.mu.Unlock()
	due()
}

// move is to, with the mutex held.
func (f *flight) move(s stage) {
	g := f.gate
	if f.stage == s {
		return
	}
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	if f.stage == atLimiter && s == atServer {
		g.waited = time.Since(f.since)
	}
	if f.stage != aside {
		g.count[f.stage]--
	}
	if s != aside {
		g.count[s]++
	}
	f.stage, f.since = s, time.Now()
	if s == atLimiter {
		var timer *time.Timer
		timer = time.AfterFunc(max(minPatience, 3*g.waited), func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if f.timer == timer {
				f.move(aside)
			}
		})
		f.timer = timer
	}
	for g.queue.Len() > 0 && g.open() {
		g.queue.Remove(g.queue.Front()).(func())()
	}
	for g.failed.Len() > 0 && g.openAgain() {
		g.failed.Remove(g.failed.Front()).(func())()
	}
}
