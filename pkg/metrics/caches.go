// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
)

// Cache is what a scrape publishes of an informer's cache.
type Cache struct {
	Resource schema.GroupVersionResource
	// Handlers are its event handlers, each name once.
	Handlers []Handler
	// Measured is nil if nothing is known of the cache itself.
	*Measured
}

// Handler is how far the event handlers of one name are behind the cache.
type Handler struct {
	Name string
	Lag  time.Duration
}

// Measured is what is known of a cache. Proven is zero if nothing was ever proven of it.
type Measured struct {
	State              string
	Every, Age         time.Duration
	WatchLag, QueueLag uint64
	Proven             time.Time
}

// caches publishes what the monitor knows at the time of a scrape: an age is never older than that.
type caches struct {
	metrics.BaseStableCollector

	mu   sync.Mutex
	read func() []Cache
	// made are the series of the last scrape.
	made   map[seriesKey]*series
	scrape uint64
}

// seriesKey names a series by its metric, its resource, and the label that it has besides, if any.
type seriesKey struct {
	desc     *metrics.Desc
	resource schema.GroupVersionResource
	label    string
}

// series is a gauge. Its labels are made once: those of some hundred caches are most of what a scrape would allocate.
type series struct {
	metrics.Metric
	labels []*dto.LabelPair
	scrape uint64
}

// reading is the value of a series at a scrape.
type reading struct {
	*series
	value float64
}

// Write implements metrics.Metric.
func (r reading) Write(out *dto.Metric) error {
	out.Label, out.Gauge = r.labels, &dto.Gauge{Value: &r.value}
	return nil
}

var cacheCollector = &caches{}

// SetCaches has each scrape read the caches with read, which returns each resource once.
func SetCaches(read func() []Cache) {
	cacheCollector.mu.Lock()
	defer cacheCollector.mu.Unlock()
	cacheCollector.read = read
}

// DescribeWithStability implements metrics.StableCollector.
func (*caches) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{stalenessSeconds, stalenessState, stalenessLag, lastProof, probeInterval, handlerLag} {
		ch <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *caches) CollectWithStability(ch chan<- metrics.Metric) {
	c.mu.Lock()
	read := c.read
	c.mu.Unlock()
	if read == nil {
		return
	}
	for _, r := range c.readings(read()) {
		ch <- r
	}
}

func (c *caches) readings(caches []Cache) (out []reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scrape++
	out = make([]reading, 0, len(c.made))
	gauge := func(d *metrics.Desc, value float64, resource schema.GroupVersionResource, label string) {
		if s := c.series(seriesKey{d, resource, label}); s != nil {
			out = append(out, reading{s, value})
		}
	}
	for _, cache := range caches {
		r := cache.Resource
		for _, h := range cache.Handlers {
			gauge(handlerLag, h.Lag.Seconds(), r, h.Name)
		}
		if cache.Measured == nil {
			continue
		}
		for _, state := range states {
			value := 0.0
			if state == cache.State {
				value = 1
			}
			gauge(stalenessState, value, r, state)
		}
		gauge(probeInterval, cache.Every.Seconds(), r, "")
		gauge(stalenessLag, float64(cache.WatchLag), r, "watch")
		gauge(stalenessLag, float64(cache.QueueLag), r, "queue")
		if !cache.Proven.IsZero() {
			gauge(stalenessSeconds, cache.Age.Seconds(), r, "")
			gauge(lastProof, float64(cache.Proven.UnixMilli())/1000, r, "")
		}
	}
	maps.DeleteFunc(c.made, func(_ seriesKey, s *series) bool { return s.scrape != c.scrape })
	return out
}

// series returns the one that the key names, or nil if its metric is hidden. mu must be held.
func (c *caches) series(key seriesKey) *series {
	s := c.made[key]
	if s == nil {
		values := labels(key.resource)
		if key.label != "" {
			values = append(values, key.label)
		}
		gauge := metrics.NewLazyConstMetric(key.desc, metrics.GaugeValue, 0, values...)
		if gauge == nil {
			return nil
		}
		var made dto.Metric
		if gauge.Write(&made) != nil {
			return nil
		}
		s = &series{Metric: gauge, labels: made.Label}
		if c.made == nil {
			c.made = map[seriesKey]*series{}
		}
		c.made[key] = s
	}
	s.scrape = c.scrape
	return s
}
