// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

const informers = "informer_staleness"

// latencies reach from a fence that is answered at once to one that is given up on.
var latencies = []float64{0.005, 0.025, 0.1, 0.5, 2, 10}

var byResource = []string{"group", "version", "resource"}

func with(labels ...string) []string { return append(append([]string(nil), byResource...), labels...) }

var (
	stalenessSeconds = metrics.NewDesc(informers+"_seconds",
		"Upper bound on the age of an informer's cache: time since the newest moment of which it is proven to have everything. Absent while nothing is proven.",
		byResource, nil, metrics.ALPHA, "")
	stalenessState = metrics.NewDesc(informers+"_state",
		"1 for the state that an informer's cache is in: fresh, quiet, lagging, stalled or unknown; 0 for the others.",
		with("state"), nil, metrics.ALPHA, "")
	stalenessLag = metrics.NewDesc(informers+"_lag_resource_versions",
		"How far an informer's cache is behind the server, in changes to any resource: what the watch has yet to bring, and what waits in the informer's queue. 0 for a cache that is not behind.",
		with("where"), nil, metrics.ALPHA, "")
	lastProof = metrics.NewDesc(informers+"_last_proof_timestamp_seconds",
		"Unix time as of which an informer's cache was last proven to have everything. Absent while nothing is proven.",
		byResource, nil, metrics.ALPHA, "")

	probeInterval = metrics.NewDesc(informers+"_probe_interval_seconds",
		"How long after a proof the monitor asks about an informer's cache again, if nothing is amiss. Caches that protected controllers read are asked about so often that they stay within 15 s; the others share what is left of 2 requests a second.",
		byResource, nil, metrics.ALPHA, "")
	handlerLag = metrics.NewDesc(informers+"_handler_lag_seconds",
		"For how long an informer's cache has had something that an event handler was not handed yet, by the package that added the handler. 0 for one that is not behind.",
		with("handler"), nil, metrics.ALPHA, "")

	stateChanges = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "state_changes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times an informer's cache has entered a state.",
	}, with("state"))
	probes = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "probes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times the monitor has looked how old an informer's cache is, by the state that it found, or the reason for which it learned nothing.",
	}, with("outcome"))
	probeDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: informers, Name: "probe_duration_seconds", StabilityLevel: metrics.ALPHA, Buckets: latencies,
		Help: "How long the requests of a probe took, by kind: a fence (consistent list of one object or none), a list of the metadata of a small collection, or a short metadata watch.",
	}, with("request"))
	probeBytes = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "probe_response_bytes_total", StabilityLevel: metrics.ALPHA,
		Help: "Bytes of the bodies that the server answered to fences, quiet proofs and their watches.",
	}, byResource)
	stalenessRewinds = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "rewinds_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times a fence showed that the server's resource versions of a resource went backward.",
	}, byResource)
	endedWatches = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "ended_watches_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of watches that were ended because they held back what the server had, so that the informer takes up a new one.",
	}, byResource)
)

const (
	requestFence = "fence"
	requestList  = "list"
	requestWatch = "watch"
)

// Staleness is what the prover and the staleness monitor count into.
type Staleness struct {
	freshness.NoMetrics

	mu sync.Mutex
	// gone are the resources of which no series may come back, and since when: requests that were under way then
	// have ended after goneFor.
	gone   map[schema.GroupVersionResource]time.Time
	pruned time.Time
}

const goneFor = 10 * time.Minute

var (
	_ freshness.Metrics        = &Staleness{}
	_ stalenessmonitor.Metrics = &Staleness{}
)

func labels(r schema.GroupVersionResource, more ...string) []string {
	return append([]string{r.Group, r.Version, r.Resource}, more...)
}

// Watched implements stalenessmonitor.Metrics: the series exist at zero.
func (s *Staleness) Watched(r schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gone, r)
	for _, state := range stalenessmonitor.States() {
		stateChanges.WithLabelValues(labels(r, string(state))...).Add(0)
		probes.WithLabelValues(labels(r, string(state))...).Add(0)
	}
	for _, request := range []string{requestFence, requestList, requestWatch} {
		probeDuration.WithLabelValues(labels(r, request)...)
	}
	probeBytes.WithLabelValues(labels(r)...).Add(0)
	stalenessRewinds.WithLabelValues(labels(r)...).Add(0)
	endedWatches.WithLabelValues(labels(r)...).Add(0)
}

// Unwatched implements stalenessmonitor.Metrics: no series of the resource is left.
func (s *Staleness) Unwatched(r schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone == nil {
		s.gone = map[schema.GroupVersionResource]time.Time{}
	}
	s.gone[r] = time.Now()
	match := map[string]string{"group": r.Group, "version": r.Version, "resource": r.Resource}
	stateChanges.DeletePartialMatch(match)
	probes.DeletePartialMatch(match)
	probeDuration.DeletePartialMatch(match)
	probeBytes.DeletePartialMatch(match)
	stalenessRewinds.DeletePartialMatch(match)
	endedWatches.DeletePartialMatch(match)
}

// count calls add unless the resource is gone.
func (s *Staleness) count(r schema.GroupVersionResource, add func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, gone := s.gone[r]; !gone {
		add()
	}
	if now := time.Now(); len(s.gone) > 0 && now.Sub(s.pruned) >= goneFor/10 {
		s.pruned = now
		maps.DeleteFunc(s.gone, func(_ schema.GroupVersionResource, since time.Time) bool { return now.Sub(since) >= goneFor })
	}
}

// Probed implements stalenessmonitor.Metrics.
func (s *Staleness) Probed(r schema.GroupVersionResource, outcome string, _ time.Duration) {
	s.count(r, func() { probes.WithLabelValues(labels(r, outcome)...).Inc() })
}

// Entered implements stalenessmonitor.Metrics.
func (s *Staleness) Entered(r schema.GroupVersionResource, state stalenessmonitor.State) {
	s.count(r, func() { stateChanges.WithLabelValues(labels(r, string(state))...).Inc() })
}

// Fence implements freshness.Metrics.
func (s *Staleness) Fence(r schema.GroupVersionResource, _ freshness.Reason, latency time.Duration) {
	s.count(r, func() { probeDuration.WithLabelValues(labels(r, requestFence)...).Observe(latency.Seconds()) })
}

// List implements freshness.Metrics.
func (s *Staleness) List(r schema.GroupVersionResource, _ freshness.Reason, latency time.Duration) {
	s.count(r, func() { probeDuration.WithLabelValues(labels(r, requestList)...).Observe(latency.Seconds()) })
}

// Watch implements freshness.Metrics.
func (s *Staleness) Watch(r schema.GroupVersionResource, _ freshness.Reason, latency time.Duration) {
	s.count(r, func() { probeDuration.WithLabelValues(labels(r, requestWatch)...).Observe(latency.Seconds()) })
}

// Bytes implements freshness.Metrics.
func (s *Staleness) Bytes(r schema.GroupVersionResource, n int) {
	s.count(r, func() { probeBytes.WithLabelValues(labels(r)...).Add(float64(n)) })
}

// Rewind implements freshness.Metrics.
func (s *Staleness) Rewind(r schema.GroupVersionResource) {
	s.count(r, func() { stalenessRewinds.WithLabelValues(labels(r)...).Inc() })
}

// WatchesEnded counts watches that were ended because they were stalled.
func (s *Staleness) WatchesEnded(r schema.GroupVersionResource, n int) {
	s.count(r, func() { endedWatches.WithLabelValues(labels(r)...).Add(float64(n)) })
}

// caches publishes what the monitor knows at the time of a scrape: an age is never older than that.
type caches struct {
	metrics.BaseStableCollector

	mu   sync.Mutex
	read func() []stalenessmonitor.Cache
}

var cacheCollector = &caches{}

// SetCaches has each scrape read the caches with read, which returns each resource once.
func SetCaches(read func() []stalenessmonitor.Cache) {
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
	gauge := func(d *metrics.Desc, value float64, labels []string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, labels...)
	}
	for _, cache := range read() {
		if !cache.Served() {
			continue
		}
		r := cache.Resource
		for _, h := range cache.Handlers {
			gauge(handlerLag, h.Lag.Seconds(), labels(r, h.Name))
		}
		if !cache.Measured() {
			continue
		}
		for _, state := range stalenessmonitor.States() {
			value := 0.0
			if state == cache.State {
				value = 1
			}
			gauge(stalenessState, value, labels(r, string(state)))
		}
		gauge(probeInterval, cache.Every.Seconds(), labels(r))
		gauge(stalenessLag, float64(cache.Lag.Watch), labels(r, "watch"))
		gauge(stalenessLag, float64(cache.Lag.Queue), labels(r, "queue"))
		if !cache.Proven.IsZero() {
			gauge(stalenessSeconds, cache.Age.Seconds(), labels(r))
			gauge(lastProof, float64(cache.Proven.UnixMilli())/1000, labels(r))
		}
	}
}
