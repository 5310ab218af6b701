// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessz

import (
	"time"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

// Publish has each scrape of the metrics read what the page shows: the waits, and the caches if they are monitored.
func (p *Page) Publish() {
	metrics.SetWaits(p.WaitsNow)
	if p.Monitoring {
		metrics.SetCaches(p.cacheSamples)
	}
}

// WaitsNow returns each controller's longest waits that have not ended yet, and the number of objects with recorded writes. Leading is
// false if this process leads nothing, so that nothing could wait.
func (p *Page) WaitsNow() (now metrics.Waits, leading bool) {
	terms := p.current()
	waits := Longest{rowless: true}
	for _, t := range terms {
		t.Waits(&waits)
		now.Recorded += t.Recorded()
	}
	at := time.Now()
	lasts := func(since time.Time) time.Duration {
		if since.IsZero() {
			return 0
		}
		return max(0, at.Sub(since))
	}
	now.Longest = make(map[string]metrics.Waiting, len(waits.controllers))
	for controller, t := range waits.controllers {
		now.Longest[controller] = metrics.Waiting{Object: lasts(t.object), Action: lasts(t.action)}
	}
	return now, len(terms) > 0
}

// cacheSamples leaves out resources that the server does not know, and what is not known of caches whose turn to be asked about
// has not come yet.
func (p *Page) cacheSamples() []metrics.Cache {
	caches := p.Caches()
	samples := make([]metrics.Cache, 0, len(caches))
	for _, c := range caches {
		if !c.Served() {
			continue
		}
		s := metrics.Cache{Resource: c.Resource, Handlers: make([]metrics.Handler, len(c.Handlers))}
		for i, h := range c.Handlers {
			s.Handlers[i] = metrics.Handler{Name: h.Name, Lag: h.Lag}
		}
		if c.Measured() {
			s.Measured = &metrics.Measured{State: string(c.State), Every: c.Every, WatchLag: c.Lag.Watch, QueueLag: c.Lag.Queue, Proven: c.Proven, Age: c.Age}
		}
		samples = append(samples, s)
	}
	return samples
}
