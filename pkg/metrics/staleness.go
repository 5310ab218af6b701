// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
)

const informers = "informer_staleness"

// latencies reach from a fence that is answered at once to one that is given up on.
var latencies = []float64{0.005, 0.025, 0.1, 0.5, 2, 10}

var byResource = []string{"group", "version", "resource"}

func with(labels ...string) []string { return append(append([]string(nil), byResource...), labels...) }

var (
	stalenessSeconds = metrics.NewDesc(informers+"_seconds",
		"Upper bound on the age of an informer's cache: time since the newest moment as of which it is proven complete. Absent while nothing is proven.",
		byResource, nil, metrics.ALPHA, "")
	stalenessState = metrics.NewDesc(informers+"_state",
		"1 for the state that an informer's cache is in: fresh, quiet, lagging, stalled or unknown; 0 for the others.",
		with("state"), nil, metrics.ALPHA, "")
	stalenessLag = metrics.NewDesc(informers+"_lag_resource_versions",
		"Lag of an informer's cache behind the server, in changes to any resource: not yet received by the watch, and waiting in the informer's queue. 0 for a cache without lag.",
		with("where"), nil, metrics.ALPHA, "")
	lastProof = metrics.NewDesc(informers+"_last_proof_timestamp_seconds",
		"Unix time as of which an informer's cache was last proven complete. Absent while nothing is proven.",
		byResource, nil, metrics.ALPHA, "")

	probeInterval = metrics.NewDesc(informers+"_probe_interval_seconds",
		"Time after a proof at which the monitor probes an informer's cache again. It probes caches that protected controllers read so often that their ages stay within 15 s; the others share the rest of 2 requests a second.",
		byResource, nil, metrics.ALPHA, "")
	handlerLag = metrics.NewDesc(informers+"_handler_lag_seconds",
		"How long an event handler lags behind its informer's cache, by the package that added the handler. 0 without lag.",
		with("handler"), nil, metrics.ALPHA, "")

	stateChanges = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "state_changes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times an informer's cache has entered a state.",
	}, with("state"))
	probes = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "probes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of probes of an informer's cache, by the state found or the reason why none was.",
	}, with("outcome"))
	probeRequests = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "probe_requests_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of requests that probes of an informer's cache have made, by kind: a fence (consistent list of one object or none), a list of the metadata of a small collection, or a short metadata watch.",
	}, with("request"))
	// probeDuration is not for each resource: most of what a scrape costs would be its buckets.
	probeDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: informers, Name: "probe_duration_seconds", StabilityLevel: metrics.ALPHA, Buckets: latencies,
		Help: "How long the requests of probes took, by kind, over all resources.",
	}, []string{"request"})
	probeBytes = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "probe_response_bytes_total", StabilityLevel: metrics.ALPHA,
		Help: "Bytes of the server's answers to probes: fences, lists and watches.",
	}, byResource)
	stalenessRewinds = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "rewinds_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times a fence showed that the resource versions of a resource went backward.",
	}, byResource)
	endedWatches = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: informers, Name: "ended_watches_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of stalled watches that the process ended so that the informer opens a new one.",
	}, byResource)
)

// states of a cache.
var states = []string{"fresh", "quiet", "lagging", "stalled", "unknown"}

const (
	requestFence = "fence"
	requestList  = "list"
	requestWatch = "watch"
)

// Staleness is what the prover and the staleness monitor count into.
type Staleness struct {
	mu sync.Mutex
	// gone are the resources of which no series may come back, and since when: requests that were under way then
	// have ended after goneFor.
	gone   map[schema.GroupVersionResource]time.Time
	pruned time.Time
}

const goneFor = 10 * time.Minute

func labels(r schema.GroupVersionResource, more ...string) []string {
	return append([]string{r.Group, r.Version, r.Resource}, more...)
}

// Watched implements stalenessmonitor.Metrics: the series exist at zero.
func (s *Staleness) Watched(r schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gone, r)
	for _, state := range states {
		stateChanges.WithLabelValues(labels(r, state)...).Add(0)
		probes.WithLabelValues(labels(r, state)...).Add(0)
	}
	for _, request := range []string{requestFence, requestList, requestWatch} {
		probeRequests.WithLabelValues(labels(r, request)...).Add(0)
		probeDuration.WithLabelValues(request)
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
	probeRequests.DeletePartialMatch(match)
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
func (s *Staleness) Probed(r schema.GroupVersionResource, outcome string) {
	s.count(r, func() { probes.WithLabelValues(labels(r, outcome)...).Inc() })
}

// Entered implements stalenessmonitor.Metrics.
func (s *Staleness) Entered(r schema.GroupVersionResource, state string) {
	s.count(r, func() { stateChanges.WithLabelValues(labels(r, state)...).Inc() })
}

// requested counts a request of a probe.
func (s *Staleness) requested(r schema.GroupVersionResource, request string, latency time.Duration) {
	s.count(r, func() { probeRequests.WithLabelValues(labels(r, request)...).Inc() })
	probeDuration.WithLabelValues(request).Observe(latency.Seconds())
}

// Fence implements freshness.Metrics.
func (s *Staleness) Fence(r schema.GroupVersionResource, latency time.Duration) {
	s.requested(r, requestFence, latency)
}

// List implements freshness.Metrics.
func (s *Staleness) List(r schema.GroupVersionResource, latency time.Duration) {
	s.requested(r, requestList, latency)
}

// Watch implements freshness.Metrics.
func (s *Staleness) Watch(r schema.GroupVersionResource, latency time.Duration) {
	s.requested(r, requestWatch, latency)
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
