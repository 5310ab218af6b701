// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

const (
	// handlerLate is the lag of a handler from which on it is logged.
	handlerLate = 10 * time.Second
	// keptMarks is how many samples of a store are kept for its slowest handler. If they are not enough, every other one
	// is kept, so that the lag of a handler that is hours behind is exact to a percent.
	keptMarks = 256
)

// backlog finds how far the handlers of an informer are behind its store. A handler that has not passed the store's position at
// a sample has been behind since that sample, or up to a second longer.
type backlog struct {
	// marks are past positions of the store that a handler has not passed: oldest first, RVs rising.
	marks []mark
	// step is the least time between two marks.
	step time.Duration
	// last is the store's RV at the last sample.
	last uint64
	// seen are the handlers at the last sample.
	seen map[*Delivery]*seenHandler
}

type mark struct {
	rv uint64
	at time.Time
}

// seenHandler is a handler's position at the last sample, since when it is there, and whether its lag was logged.
type seenHandler struct {
	position uint64
	moved    time.Time
	logged   bool
}

// sample notes the handlers' positions, and the store's a moment before.
func (b *backlog) sample(stored uint64, deliveries []*Delivery, now time.Time) {
	if len(deliveries) == 0 {
		*b = backlog{}
		return
	}
	if stored < b.last {
		b.marks = nil // Resource versions went backward, or an apiserver that lags answered a relist: there is nothing to compare.
	}
	if stored != b.last {
		b.last = stored
		if n := len(b.marks); n == 0 || now.Sub(b.marks[n-1].at) >= b.step {
			b.marks = append(b.marks, mark{stored, now})
		}
	}
	if b.seen == nil {
		b.seen = make(map[*Delivery]*seenHandler, len(deliveries))
	}
	slowest := deliveries[0].Position()
	for _, d := range deliveries {
		position := d.Position()
		slowest = min(slowest, position)
		if s := b.seen[d]; s == nil {
			b.seen[d] = &seenHandler{position: position, moved: now}
		} else if s.position != position {
			s.position, s.moved = position, now
		}
	}
	if len(b.seen) > len(deliveries) {
		maps.DeleteFunc(b.seen, func(d *Delivery, _ *seenHandler) bool { return !slices.Contains(deliveries, d) })
	}
	i, _ := slices.BinarySearchFunc(b.marks, slowest+1, func(m mark, rv uint64) int { return cmp.Compare(m.rv, rv) })
	b.marks = slices.Delete(b.marks, 0, i)
	if len(b.marks) == 0 {
		b.step = 0
		if slowest < stored {
			b.marks = append(b.marks, mark{stored, now}) // A handler was added just now, or has just passed the last mark.
		}
	}
	if len(b.marks) > keptMarks {
		b.step = max(2*b.step, 2*sampleEvery)
		thinned := b.marks[:0]
		for i, m := range b.marks {
			if i%2 == 0 {
				thinned = append(thinned, m)
			}
		}
		b.marks = thinned
	}
}

// lag is for how long the store has had what a handler at position has not received.
func (b *backlog) lag(position uint64, now time.Time) time.Duration {
	i, _ := slices.BinarySearchFunc(b.marks, position+1, func(m mark, rv uint64) int { return cmp.Compare(m.rv, rv) })
	if i == len(b.marks) {
		return 0
	}
	return max(0, now.Sub(b.marks[i].at))
}

// handlers says how far each is behind.
func (b *backlog) handlers(deliveries []*Delivery, now time.Time) []Handler {
	out := make([]Handler, 0, len(deliveries))
	for _, d := range deliveries {
		position := d.Position()
		h := Handler{Name: d.Name(), Lag: b.lag(position, now)}
		if position > 0 {
			h.Delivered = strconv.FormatUint(position, 10)
		}
		if s := b.seen[d]; s != nil && h.Lag > 0 {
			h.Stalled = s.position == position && now.Sub(s.moved) >= Period
		}
		switch i := slices.IndexFunc(out, func(other Handler) bool { return other.Name == h.Name }); {
		case i < 0:
			out = append(out, h)
		case out[i].Lag < h.Lag:
			out[i] = h
		}
	}
	slices.SortFunc(out, func(a, b Handler) int { return cmp.Or(cmp.Compare(b.Lag, a.Lag), strings.Compare(a.Name, b.Name)) })
	return out
}

// sampleHandlers reads the handlers' positions, and logs when one falls far behind or has caught up.
func (c *probed) sampleHandlers(ctx context.Context, rv string, now time.Time) {
	stored, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return // It has no list yet, or cannot be compared.
	}
	deliveries := c.m.opts.Handlers(c.informer)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backlog.sample(stored, deliveries, now)
	logger := klog.FromContext(ctx)
	for d, s := range c.backlog.seen {
		lag := c.backlog.lag(s.position, now)
		switch {
		case !s.logged && lag >= handlerLate:
			s.logged = true
			logger.Info("An event handler is behind its informer's cache", "resource", c.gvr, "handler", d.Name(), "lag", lag, "delivered", s.position, "cache", stored)
		case s.logged && lag == 0:
			s.logged = false
			logger.Info("An event handler has caught up with its informer's cache", "resource", c.gvr, "handler", d.Name())
		}
	}
}
